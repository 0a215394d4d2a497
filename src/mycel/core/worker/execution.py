"""Attempts under way: spread over lanes, given to drivers, and what comes back from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mycel.core import events, messages
from mycel.core.authenticators import AUTHENTICATOR_BYTES
from mycel.core.effects import KillRuns, RunAttempts, WithdrawRuns
from mycel.core.identifiers import AttemptId, LaneId, LeaseId, PeerId, task_id
from mycel.core.messages import Outcome, Text, Window
from mycel.core.model.failures import code_of
from mycel.core.model.outcome_limits import fitting, is_credible, made_credible
from mycel.core.model.work import Finished, Run

from .granted_leases import Grants
from .outcomes import Outcomes
from .records import Grant, Held, Lane, Unacknowledged

if TYPE_CHECKING:
    from .machine import WorkerMachine


class Running:
    def __init__(
        self,
        machine: WorkerMachine,
        granted: Grants,
        outcomes: Outcomes,
        digest: Callable[[bytes], bytes],
    ) -> None:
        self._machine = machine
        self._granted = granted
        self._outcomes = outcomes
        self._digest = digest
        self._runs = 0
        self._unconfirmed: list[tuple[Grant, AttemptId, int]] = []

    def assign(self, peer: PeerId, message: messages.Assign, now: float) -> None:
        first = message.bundles[0].first
        count = sum(len(bundle.indices) for bundle in message.bundles)
        grant = self._granted.of(peer, message.lease)
        if grant is None or not grant.is_open:
            reason = self._machine.closing.reason or "the lease has ended"
            self._machine.send(peer, messages.Refused(first, count, message.lease, reason))
            return
        for bundle in message.bundles:
            self._hold(grant, bundle)
        self._feed(grant)
        self._relieve(grant)
        if not self._unconfirmed:
            due = now + self._machine.settings.confirm_seconds
            self._machine.watch("confirm", None, due)
        self._unconfirmed.append((grant, first, count))

    def confirm(self) -> None:
        """Says that assignments have arrived, where nothing that they led to has said so."""
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        for grant, first, count in unconfirmed:
            held = self._machine.scheduler(grant.scheduler).held
            if any(AttemptId(number) in held for number in range(first, first + count)):
                accepted = messages.Accepted(grant.id, first, count)
                self._machine.send(grant.scheduler, accepted)

    def _hold(self, grant: Grant, bundle: messages.Bundle) -> None:
        arguments = bundle.arguments or [b""] * len(bundle.indices)
        attempt: int = bundle.first
        place = 0
        of_scheduler = self._machine.schedulers[grant.scheduler].held
        for index, number, argument in zip(bundle.indices, bundle.numbers, arguments, strict=True):
            self._runs += 1
            held = Held(
                AttemptId(self._runs),
                AttemptId(attempt),
                grant,
                bundle.job,
                bundle.job_id,
                index,
                number,
                bundle.work,
                argument,
                bundle.authenticators[place : place + AUTHENTICATOR_BYTES],
            )
            self._machine.held[held.run] = of_scheduler[held.id] = held
            grant.waiting.append(held)
            attempt += 1
            place += AUTHENTICATOR_BYTES

    def _feed(self, grant: Grant) -> None:
        """Spreads what waits over the lanes: an idle lane first, then the shortest."""
        depth = 1 + grant.prefetch(self._machine.settings)
        batches: dict[LaneId, tuple[Lane, list[Held]]] = {}
        while grant.waiting:
            lane = min(grant.lanes, key=lambda one: (one.is_long, one.held))
            if lane.held >= (1 if lane.is_long else depth):
                break
            share = max(1, min(depth, -(-len(grant.waiting) // len(grant.lanes))))
            room = min(share, depth - lane.held, len(grant.waiting))
            batch = [grant.waiting.popleft() for _ in range(room)]
            batches.setdefault(lane.id, (lane, []))[1].extend(batch)
            lane.held += len(batch)
            lane.opened = True
            for held in batch:
                held.lane = lane
        for lane, batch in batches.values():
            runs = [self._run(grant, held) for held in batch]
            self._machine.emit(RunAttempts(grant.shape.driver, lane.id, runs))

    @staticmethod
    def _run(grant: Grant, held: Held) -> Run:
        return Run(
            held.run,
            task_id(held.job_id, held.index),
            held.job_id,
            held.number,
            grant.shape.user,
            held.work,
            held.arguments,
            "",
            grant.scheduler,
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
                held.grant.waiting.remove(held)
                self._granted.let_go(held)
                gone.append(attempt)
            elif held.started_at is None:
                self._machine.emit(WithdrawRuns(held.grant.shape.driver, [held.run]))
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
                held.grant.waiting.remove(held)
                self._granted.let_go(held)
            else:
                by_driver.setdefault(held.grant.shape.driver, []).append(held.run)
        for driver, runs in by_driver.items():
            self._machine.emit(KillRuns(driver, runs))

    # What the drivers tell

    def runs_started(self, event: events.RunsStarted, now: float) -> None:
        by_scheduler: dict[PeerId, list[tuple[AttemptId, float]]] = {}
        grants: dict[LeaseId, Grant] = {}
        for run, started_at in event.attempts:
            held = self._machine.held.get(run)
            if held is None:
                continue
            held.started_at = started_at
            held.grant.measure(max(self._machine.settings.long_seconds, now - started_at))
            if held.lane is not None:
                held.lane.is_long = True
            grants[held.grant.id] = held.grant
            by_scheduler.setdefault(held.grant.scheduler, []).append((held.id, started_at))
        for peer, started in by_scheduler.items():
            windows = [self._window(one) for one in grants.values() if one.scheduler == peer]
            self._machine.send(peer, messages.Started(now, started, tuple(windows)))
        for grant in grants.values():
            self._relieve(grant)
        self._machine.granting.tell_load(now)  # what is quick never counts as load

    def runs_streamed(self, event: events.RunsStreamed, now: float) -> None:
        by_scheduler: dict[PeerId, list[tuple[AttemptId, bytes]]] = {}
        for run, piece in event.pieces:
            held = self._machine.held.get(run)
            if held is not None and not held.killed:
                by_scheduler.setdefault(held.grant.scheduler, []).append((held.id, piece))
        for peer, pieces in by_scheduler.items():
            self._machine.send(peer, messages.Streamed(pieces))

    def runs_wrote(self, event: events.RunsWrote, now: float) -> None:
        by_scheduler: dict[PeerId, list[Text]] = {}
        for text in event.texts:
            held = self._machine.held.get(text.attempt)
            if held is not None and not held.killed:
                told = Text(held.id, text.stream, text.offset, text.data)
                by_scheduler.setdefault(held.grant.scheduler, []).append(told)
        for peer, texts in by_scheduler.items():
            self._machine.send(peer, messages.Written(texts))

    def runs_finished(self, event: events.RunsFinished, now: float) -> None:
        finished: dict[PeerId, list[Outcome]] = {}
        handed_back: dict[PeerId, list[AttemptId]] = {}
        grants: dict[LeaseId, Grant] = {}
        was_load = False
        for bare in event.finished:
            held = self._machine.held.get(bare.attempt)
            if held is None:
                continue
            self._granted.let_go(held)
            was_load |= held.started_at is not None
            grant = held.grant
            grants[grant.id] = grant
            self._leave_lane(held)
            if held.killed:
                continue
            if held.handed_back and bare.state == "cancelled":
                handed_back.setdefault(grant.scheduler, []).append(held.id)
                continue
            grant.measure(max(0.0, bare.ended_at - bare.started_at))
            outcome = self._outcome(held, bare)
            record = self._machine.scheduler(grant.scheduler)
            record.outcomes[outcome.attempt] = Unacknowledged(outcome, now, spooled=False)
            finished.setdefault(grant.scheduler, []).append(outcome)
        for peer, outcomes in finished.items():
            windows = [self._window(one) for one in grants.values() if one.scheduler == peer]
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
        if was_load:
            self._machine.granting.tell_load(now)
        self._after(grants.values())

    def _outcome(self, held: Held, bare: Finished) -> Outcome:
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
        )

    def _window(self, grant: Grant) -> Window:
        return Window(grant.id, grant.window(self._machine.settings))

    def runs_returned(self, event: events.RunsReturned, now: float) -> None:
        """Something long runs in that lane: what waited there goes to a lane that is free, or
        back to its scheduler."""
        grants: dict[LeaseId, Grant] = {}
        for run in reversed(event.attempts):
            held = self._machine.held.get(run)
            if held is None:
                continue
            self._leave_lane(held)
            grants[held.grant.id] = held.grant
            if held.killed:
                self._granted.let_go(held)
            else:
                held.grant.waiting.appendleft(held)
        for grant in grants.values():
            if grant.is_open:
                self._feed(grant)
            self._send_back(grant)
        self._after(grants.values())

    def _relieve(self, grant: Grant) -> None:
        """Of what would wait behind long tasks: others may have room for it."""
        if grant.is_open and grant.is_long:
            self._send_back(grant)

    def _send_back(self, grant: Grant) -> None:
        if not grant.waiting:
            return
        back = self._granted.drop_waiting(grant)
        self._machine.send(grant.scheduler, messages.Returned(back, [self._window(grant)]))

    def runs_withdrawn(self, event: events.RunsWithdrawn, now: float) -> None:
        by_scheduler: dict[PeerId, list[AttemptId]] = {}
        grants: dict[LeaseId, Grant] = {}
        for run in event.attempts:
            held = self._machine.held.get(run)
            if held is None:
                continue
            self._granted.let_go(held)
            self._leave_lane(held)
            grants[held.grant.id] = held.grant
            if not held.killed:
                by_scheduler.setdefault(held.grant.scheduler, []).append(held.id)
        for peer, attempts in by_scheduler.items():
            self._machine.send(peer, messages.Returned(attempts, []))
        self._after(grants.values())

    @staticmethod
    def _leave_lane(held: Held) -> None:
        lane = held.lane
        if lane is not None:
            lane.held -= 1
            if held.started_at is not None or lane.held == 0:
                lane.is_long = False
            held.lane = None

    def _after(self, grants: Iterable[Grant]) -> None:
        for grant in grants:
            if grant.is_open:
                self._feed(grant)
            else:
                self._granted.close_idle_lanes(grant)
        self._machine.closing.look()
