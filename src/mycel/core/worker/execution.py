"""Attempts under way: taken or refused, spread over lanes, given to drivers, and what comes back
from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mycel.core import events, messages
from mycel.core.authenticators import AUTHENTICATOR_BYTES
from mycel.core.effects import KillRuns, RunAttempts, WithdrawRuns
from mycel.core.identifiers import AttemptId, LaneId, PeerId, task_id
from mycel.core.matching import obstacle
from mycel.core.messages import Outcome, Text, Window
from mycel.core.messages.refusals import (
    CLOSED,
    LEASE_OVER,
    NO_ROOM,
    NOT_INTRODUCED,
    PRICE,
    UNSUITABLE,
)
from mycel.core.model.failures import code_of
from mycel.core.model.outcome_limits import fitting, is_credible, made_credible
from mycel.core.model.work import Finished, Run, Shape
from mycel.core.ranges import REASON_CHARACTERS_MAX, bounded

from .budgets import charged, ended_in_time, limited
from .lane_table import LaneTable
from .outcomes import Outcomes
from .records import Held, Lane, Objection, SchedulerRecord, ShapeLanes, Unacknowledged

if TYPE_CHECKING:
    from .machine import WorkerMachine

Touched = dict[tuple[PeerId, Shape], ShapeLanes]


class Running:
    def __init__(
        self,
        machine: WorkerMachine,
        lane_table: LaneTable,
        outcomes: Outcomes,
        digest: Callable[[bytes], bytes],
    ) -> None:
        self._machine = machine
        self._lane_table = lane_table
        self._outcomes = outcomes
        self._digest = digest
        self._runs = 0
        self._unconfirmed: list[tuple[PeerId, AttemptId, int]] = []

    # What schedulers send

    def introduced(self, peer: PeerId, message: messages.Introduce, now: float) -> None:
        machine = self._machine
        record = machine.scheduler(peer)
        if message.lease != record.lease:
            return
        key = (peer, message.shape)
        lanes = machine.lanes.get(key)
        if lanes is None:
            self._forget_oldest(record)
            lanes = machine.lanes[key] = ShapeLanes(peer, message.shape)
        lanes.number = message.number
        record.shapes[message.number] = lanes
        lanes.objection = self._unfit(message)
        rights = machine.authority.judge(peer, message, now)
        if isinstance(rights, Objection):
            lanes.objection = lanes.objection or rights
        else:
            machine.authority.stands_on(lanes, rights, now)
        if lanes.objection is not None:
            self.object_to(lanes, lanes.objection)

    def _unfit(self, message: messages.Introduce) -> Objection | None:
        machine, shape = self._machine, message.shape
        lacks = obstacle(shape, machine.capabilities)
        if lacks is not None:
            return Objection(UNSUITABLE, lacks)
        floor = machine.tariff.floor
        if shape.max_cost is not None and floor > shape.max_cost:
            return Objection(
                PRICE, f"it asks {floor:g} for a task that may cost {shape.max_cost:g}"
            )
        return None

    def _forget_oldest(self, record: SchedulerRecord) -> None:
        if len(record.shapes) < self._machine.settings.shapes_max:
            return
        for number, lanes in list(record.shapes.items()):
            if not lanes.waiting and not lanes.busy:
                del record.shapes[number]
                self._drop(lanes)
                return

    def _drop(self, lanes: ShapeLanes) -> None:
        self._lane_table.close_idle(lanes)
        self._machine.lanes.pop(lanes.key, None)

    def forget(self, record: SchedulerRecord) -> None:
        """Nothing of that scheduler is here any more."""
        for lanes in [one for one in self._machine.lanes.values() if one.scheduler == record.peer]:
            self._drop(lanes)

    def assign(self, peer: PeerId, message: messages.Assign, now: float) -> None:
        machine = self._machine
        record = machine.scheduler(peer)
        lanes = record.shapes.get(message.shape)
        objection = self._objection(record, message, lanes)
        if objection is not None:
            attempts = [
                AttemptId(bundle.first + place)
                for bundle in message.bundles
                for place in range(len(bundle.indices))
            ]
            self._refuse(peer, attempts, objection)
            if objection.code == LEASE_OVER:
                machine.registrations.again(record, now)
            return
        assert lanes is not None
        first = message.bundles[0].first
        count = sum(len(bundle.indices) for bundle in message.bundles)
        lanes.slots = message.slots
        for bundle in message.bundles:
            self._hold(record, lanes, message, bundle)
        self._feed(lanes)
        self._refuse_the_rest(record, lanes)
        if not self._unconfirmed:
            machine.watch("confirm", None, now + machine.settings.confirm_seconds)
        self._unconfirmed.append((peer, first, count))

    def _objection(
        self, record: SchedulerRecord, message: messages.Assign, lanes: ShapeLanes | None
    ) -> Objection | None:
        if not record.lease or message.lease != record.lease:
            return Objection(LEASE_OVER, "the registration has ended")
        if self._machine.closing.reason:
            return Objection(CLOSED, self._machine.closing.reason)
        if lanes is None:
            return Objection(NOT_INTRODUCED, "it does not know this shape")
        return lanes.objection

    def _refuse(
        self, peer: PeerId, attempts: list[AttemptId], objection: Objection, *windows: Window
    ) -> None:
        record = self._machine.scheduler(peer)
        room = None
        if objection.code == NO_ROOM:
            record.waits_for_room, record.has_room = True, False
            room = record.told = self._machine.loads.room_for(record)
        reason = bounded(objection.reason, REASON_CHARACTERS_MAX)  # it may name the task's needs
        self._machine.send(peer, messages.Refused(attempts, objection.code, reason, room, windows))

    def _refuse_the_rest(self, record: SchedulerRecord, lanes: ShapeLanes) -> None:
        """Of what would wait behind long tasks, or has no lane at all: others may have room."""
        if lanes.waiting and lanes.is_long:
            back = self._drop_waiting(lanes)
            window = lanes.window(self._machine.settings)
            self._refuse(record.peer, back, Objection(NO_ROOM, "it has no room now"), window)

    def confirm(self, key: object, now: float) -> None:
        """Says that assignments have arrived, where nothing that they led to has said so."""
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        for peer, first, count in unconfirmed:
            record = self._machine.schedulers.get(peer)
            held = {} if record is None else record.held
            if any(AttemptId(number) in held for number in range(first, first + count)):
                self._machine.send(peer, messages.Accepted(first, count))

    def _hold(
        self,
        record: SchedulerRecord,
        lanes: ShapeLanes,
        message: messages.Assign,
        bundle: messages.Bundle,
    ) -> None:
        count = len(bundle.indices)
        arguments, spent = bundle.arguments or [b""] * count, bundle.spent or [0.0] * count
        most = lanes.shape.max_cost
        attempt: int = bundle.first
        place = 0
        tasks = zip(bundle.indices, bundle.numbers, arguments, spent, strict=True)
        for index, number, argument, cost in tasks:
            self._runs += 1
            held = Held(
                AttemptId(self._runs),
                AttemptId(attempt),
                lanes,
                message.lease,
                bundle.job,
                bundle.job_id,
                index,
                number,
                bundle.work,
                argument,
                bundle.authenticators[place : place + AUTHENTICATOR_BYTES],
                None if most is None else max(0.0, most - cost),
            )
            self._machine.held[held.run] = record.held[held.id] = held
            lanes.waiting.append(held)
            attempt += 1
            place += AUTHENTICATOR_BYTES

    def _feed(self, lanes: ShapeLanes) -> None:
        """Spreads what waits over as many lanes as its scheduler has booked slots: an idle lane
        first, or a new one; then the shortest."""
        if not lanes.waiting:
            return
        busy = lanes.busy
        places = min(lanes.slots - len(busy), len(lanes.waiting))
        while places > 0:
            lane = self._lane_table.free_lane(lanes)
            if lane is None:
                break
            busy.append(lane)
            places -= 1
        if busy:
            self._spread(lanes, busy)

    def _spread(self, lanes: ShapeLanes, busy: list[Lane]) -> None:
        depth = 1 + lanes.prefetch(self._machine.settings)
        batches: dict[LaneId, tuple[Lane, list[Held]]] = {}
        while lanes.waiting:
            lane = min(busy, key=lambda one: (one.is_long, one.held))
            if lane.held >= (1 if lane.is_long else depth):
                break
            share = max(1, min(depth, -(-len(lanes.waiting) // len(busy))))
            room = min(share, depth - lane.held, len(lanes.waiting))
            batch = [lanes.waiting.popleft() for _ in range(room)]
            batches.setdefault(lane.id, (lane, []))[1].extend(batch)
            lane.held += len(batch)
            lane.opened = True
            for held in batch:
                held.lane = lane
        for lane, batch in batches.values():
            runs = [self._run(lanes, held) for held in batch]
            self._machine.emit(RunAttempts(lanes.shape.driver, lane.id, runs))

    @staticmethod
    def _run(lanes: ShapeLanes, held: Held) -> Run:
        work = None if held.lane is None else limited(held.work, held.lane.rate, held.budget)
        held.is_cost_limited = work is not None
        return Run(
            held.run,
            task_id(held.job_id, held.index),
            held.job_id,
            held.number,
            lanes.shape.user,
            work or held.work,
            held.arguments,
            "",
            lanes.scheduler,
            held.id,
            booking=None if held.lane is None else held.lane.booking,
        )

    def withdraw(self, peer: PeerId, message: messages.Withdraw, now: float) -> None:
        """What waits here goes back at once; what waits in a lane when the driver says so."""
        gone: list[AttemptId] = []
        record = self._machine.scheduler(peer)
        for attempt in message.attempts:
            held = record.held.get(attempt)
            if held is None:
                if attempt not in record.outcomes:
                    gone.append(attempt)
            elif held.lane is None:
                held.lanes.waiting.remove(held)
                self._let_go(held)
                gone.append(attempt)
            elif held.started_at is None:
                self._machine.emit(WithdrawRuns(held.lanes.shape.driver, [held.run]))
        if gone:
            self._machine.send(peer, messages.Returned(gone, []))

    def kill(self, peer: PeerId, message: messages.Kill, now: float) -> None:
        by_driver: dict[str, list[AttemptId]] = {}
        record = self._machine.scheduler(peer)
        self._outcomes.drop(record, message.attempts)
        for attempt in message.attempts:
            held = record.held.get(attempt)
            if held is None:
                continue
            held.killed = True
            if held.lane is None:
                held.lanes.waiting.remove(held)
                self._let_go(held)
            else:
                by_driver.setdefault(held.lanes.shape.driver, []).append(held.run)
        for driver, runs in by_driver.items():
            self._machine.emit(KillRuns(driver, runs))

    # What is not begun any more

    def object_to(self, lanes: ShapeLanes, objection: Objection) -> None:
        """No more of this shape is begun; what runs goes on."""
        lanes.objection = objection
        if lanes.waiting:
            self._refuse(lanes.scheduler, self._drop_waiting(lanes), objection)
        self._withdraw_from_lanes(lanes)
        self._lane_table.close_idle(lanes)

    def hand_back_unstarted(self, record: SchedulerRecord) -> None:
        """Its scheduler may send it elsewhere at once."""
        dropped: list[AttemptId] = []
        for lanes in self._machine.lanes.values():
            if lanes.scheduler == record.peer:
                dropped += self._drop_waiting(lanes)
                self._withdraw_from_lanes(lanes)
        if dropped:
            self._machine.send(record.peer, messages.Returned(dropped, []))

    def _withdraw_from_lanes(self, lanes: ShapeLanes) -> None:
        in_lanes = [
            held.run
            for held in self._machine.held.values()
            if held.lanes is lanes and held.started_at is None
        ]
        if in_lanes:
            self._machine.emit(WithdrawRuns(lanes.shape.driver, in_lanes))

    def _drop_waiting(self, lanes: ShapeLanes) -> list[AttemptId]:
        dropped = list(lanes.waiting)
        lanes.waiting.clear()
        for held in dropped:
            self._let_go(held)
        return [held.id for held in dropped]

    def _let_go(self, held: Held) -> None:
        del self._machine.held[held.run]
        del self._machine.schedulers[held.scheduler].held[held.id]

    # What the drivers tell

    def runs_started(self, event: events.RunsStarted, now: float) -> None:
        by_scheduler: dict[PeerId, list[tuple[AttemptId, float]]] = {}
        touched: Touched = {}
        for run, started_at in event.attempts:
            held = self._machine.held.get(run)
            if held is None:
                continue
            held.started_at = started_at
            held.lanes.measure(max(self._machine.settings.long_seconds, now - started_at))
            if held.lane is not None:
                held.lane.is_long = True
            touched[held.lanes.key] = held.lanes
            by_scheduler.setdefault(held.scheduler, []).append((held.id, started_at))
        for peer, started in by_scheduler.items():
            windows = self._windows(touched, peer)
            self._machine.send(peer, messages.Started(now, started, tuple(windows)))
        for lanes in touched.values():
            if lanes.is_long:
                self._send_back(lanes)

    def runs_streamed(self, event: events.RunsStreamed, now: float) -> None:
        by_scheduler: dict[PeerId, list[tuple[AttemptId, bytes]]] = {}
        for run, piece in event.pieces:
            held = self._machine.held.get(run)
            if held is not None and not held.killed:
                by_scheduler.setdefault(held.scheduler, []).append((held.id, piece))
        for peer, pieces in by_scheduler.items():
            self._machine.send(peer, messages.Streamed(pieces))

    def runs_wrote(self, event: events.RunsWrote, now: float) -> None:
        by_scheduler: dict[PeerId, list[Text]] = {}
        for text in event.texts:
            held = self._machine.held.get(text.attempt)
            if held is not None and not held.killed:
                told = Text(held.id, text.stream, text.offset, text.data)
                by_scheduler.setdefault(held.scheduler, []).append(told)
        for peer, texts in by_scheduler.items():
            self._machine.send(peer, messages.Written(texts))

    def runs_finished(self, event: events.RunsFinished, now: float) -> None:
        finished: dict[PeerId, list[Outcome]] = {}
        handed_back: dict[PeerId, list[AttemptId]] = {}
        touched: Touched = {}
        for bare in event.finished:
            held = self._machine.held.get(bare.attempt)
            if held is None:
                continue
            self._let_go(held)
            lanes = held.lanes
            touched[lanes.key] = lanes
            rate = 0.0 if held.lane is None else held.lane.rate
            self._leave_lane(held, now)
            if held.killed:
                continue
            if held.handed_back and bare.state == "cancelled":
                handed_back.setdefault(lanes.scheduler, []).append(held.id)
                continue
            if held.is_cost_limited and held.budget is not None:
                bare = ended_in_time(bare, held.budget)
            lanes.measure(max(0.0, bare.ended_at - bare.started_at))
            outcome = self._outcome(held, bare, rate)
            record = self._machine.scheduler(lanes.scheduler)
            record.outcomes[outcome.attempt] = Unacknowledged(outcome, now, spooled=False)
            finished.setdefault(lanes.scheduler, []).append(outcome)
        for peer, outcomes in finished.items():
            windows = self._windows(touched, peer)
            limit = self._machine.settings.inline_bytes_max
            told = [messages.announced(one, limit) for one in outcomes]
            for part in messages.in_parts(told):
                self._machine.send(peer, messages.Results(now, part, windows))
            record = self._machine.scheduler(peer)
            if record.is_up:
                self._machine.watch("spool", None, now + self._machine.settings.spool_after_seconds)
            else:
                self._outcomes.keep(record, (record.outcomes[one.attempt] for one in outcomes))
        for peer, attempts in handed_back.items():
            reason = self._machine.closing.reason or "its worker has stopped it"
            self._machine.send(peer, messages.Returned(attempts, [], reason))
        self._after(touched.values())

    def _outcome(self, held: Held, bare: Finished, rate: float) -> Outcome:
        if not is_credible(bare):
            bare = made_credible(bare)
        stdout, stderr = fitting(bare.stdout, bare.stderr)
        return Outcome(
            held.id,
            held.job,
            held.index,
            bare.state,
            bare.value,
            self._digest(bare.value) if bare.value else b"",
            bare.exit_code,
            bare.error,
            bare.driver_fault,
            stdout,
            stderr,
            bare.started_at,
            bare.ended_at,
            held.number,
            bare.crashed,
            0,
            bare.peak_memory,
            bare.cpu_seconds,
            held.authenticator,
            code_of(bare),
            charged(bare, self._machine.tariff.floor, rate, held.budget),
        )

    def _windows(self, touched: Touched, peer: PeerId) -> list[Window]:
        settings = self._machine.settings
        return [one.window(settings) for one in touched.values() if one.scheduler == peer]

    def runs_returned(self, event: events.RunsReturned, now: float) -> None:
        """Something long runs in that lane: what waited there goes to a lane that is free, or
        back to its scheduler."""
        touched: Touched = {}
        for run in reversed(event.attempts):
            held = self._machine.held.get(run)
            if held is None:
                continue
            self._leave_lane(held, now)
            touched[held.lanes.key] = held.lanes
            if held.killed:
                self._let_go(held)
            else:
                held.lanes.waiting.appendleft(held)
        for lanes in touched.values():
            if self._may_begin(lanes):
                self._feed(lanes)
            self._send_back(lanes)
        self._after(touched.values())

    def _send_back(self, lanes: ShapeLanes) -> None:
        if lanes.waiting:
            back = self._drop_waiting(lanes)
            window = lanes.window(self._machine.settings)
            self._machine.send(lanes.scheduler, messages.Returned(back, [window]))

    def runs_withdrawn(self, event: events.RunsWithdrawn, now: float) -> None:
        by_scheduler: dict[PeerId, list[AttemptId]] = {}
        touched: Touched = {}
        for run in event.attempts:
            held = self._machine.held.get(run)
            if held is None:
                continue
            self._let_go(held)
            self._leave_lane(held, now)
            touched[held.lanes.key] = held.lanes
            if not held.killed:
                by_scheduler.setdefault(held.scheduler, []).append(held.id)
        for peer, attempts in by_scheduler.items():
            self._machine.send(peer, messages.Returned(attempts, []))
        self._after(touched.values())

    def _leave_lane(self, held: Held, now: float) -> None:
        lane = held.lane
        if lane is not None:
            if held.started_at is not None:
                lane.is_long = False
            held.lane = None
            self._lane_table.left(held.lanes, lane, now)

    def _may_begin(self, lanes: ShapeLanes) -> bool:
        machine = self._machine
        if machine.closing.reason or lanes.objection is not None:
            return False
        return bool(machine.schedulers[lanes.scheduler].lease)

    def _after(self, touched: Iterable[ShapeLanes]) -> None:
        for lanes in touched:
            if lanes.waiting and self._may_begin(lanes):
                self._feed(lanes)
        self._machine.closing.look()
