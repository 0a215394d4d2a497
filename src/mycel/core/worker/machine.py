"""The worker: the authority over its own resources.

    Request ─▶ book ─▶ Offer with a lease          Assign ─▶ lanes ─▶ driver ─▶ Results
                 │                                              │
       does not fit: collect 20 ms, Wanted           50 ms: Started, and Returned for
                                                     what waits behind

A lease ends at the reading of this worker's own clock that its last renewal echoed, plus its
length: a renewal that was written before a freeze extends nothing after it. When a lease ends,
what runs goes on and keeps its slice; what has not started is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mycel.core import events, messages
from mycel.core.effects import (
    CloseLane,
    Effect,
    KillRuns,
    RunAttempts,
    Send,
    SpoolOutcomes,
    UnspoolOutcomes,
    WithdrawRuns,
)
from mycel.core.events import Event
from mycel.core.identifiers import AttemptId, LaneId, LeaseId, PeerId, task_id
from mycel.core.messages import ControlMessage, Outcome, Window, WorkMessage
from mycel.core.resources import Capabilities, Ledger
from mycel.core.settings import WorkerSettings
from mycel.core.states import GrantState, GrantStep
from mycel.core.timers import Timers
from mycel.core.work import Run

from .granting import Granting
from .tables import Grant, Held, Lane, SchedulerRecord, Unacknowledged


class WorkerMachine:
    """Pure; the digest of results comes in as a function."""

    def __init__(
        self,
        settings: WorkerSettings,
        capabilities: Capabilities,
        *,
        name: str,
        digest: Callable[[bytes], bytes],
        software_version: str = "",
    ) -> None:
        self.settings: Final = settings
        self.capabilities: Final = capabilities
        self.name: Final = name
        self.ledger: Final = Ledger(capabilities)
        self.addresses: tuple[str, ...] = ()
        self.schedulers: dict[PeerId, SchedulerRecord] = {}
        self.grants: dict[LeaseId, Grant] = {}
        self.held: dict[AttemptId, Held] = {}
        """By this worker's own run number, which is what drivers know an attempt by."""
        self.draining = False
        self.boot = 0
        self._digest = digest
        self._software_version = software_version
        self._timers: Timers[tuple[str, object]] = Timers()
        self._effects: list[Effect] = []
        self._runs = 0
        self._granting = Granting(self)
        self._handlers: dict[type[Event], Callable[..., None]] = {
            events.SpoolLoaded: self._spool_loaded,
            events.Tick: self._tick,
            events.LinkUp: self._link_up,
            events.LinkDown: self._link_down,
            events.Received: self._received,
            events.RunsStarted: self._runs_started,
            events.RunsFinished: self._runs_finished,
            events.RunsReturned: self._runs_returned,
            events.RunsWithdrawn: self._runs_withdrawn,
            events.Drain: self._drain,
        }
        self._messages: dict[type[messages.Message], Callable[..., None]] = {
            messages.Welcome: self._welcome,
            messages.Assign: self._assign,
            messages.Withdraw: self._withdraw,
            messages.Kill: self._kill,
            messages.Acknowledge: self._acknowledge,
            messages.Renew: self._renew,
            messages.Release: self._release,
            messages.Request: self._granting.requested,
        }

    @property
    def wake_at(self) -> float | None:
        return self._timers.wake_at

    def handle(self, event: Event, now: float) -> list[Effect]:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event, now)
            self._granting.settle(now)
        effects, self._effects = self._effects, []
        return effects

    # For the parts of this machine

    def send(self, peer: PeerId, message: WorkMessage | ControlMessage) -> None:
        """Dropped while the link is down: what matters is in the next `Register`."""
        record = self.schedulers.get(peer)
        if record is not None and record.is_up:
            self._effects.append(Send(peer, message))

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def watch(self, kind: str, key: object, when: float) -> None:
        self._timers.set((kind, key), when)

    def unwatch(self, kind: str, key: object) -> None:
        self._timers.cancel((kind, key))

    # Starting, stopping, time

    def _spool_loaded(self, event: events.SpoolLoaded, now: float) -> None:
        assert self.boot == 0, "a worker starts once"
        self.boot = event.boot
        for peer, outcomes in event.outcomes.items():
            record = self._scheduler(peer)
            for outcome in outcomes:
                record.outcomes[outcome.attempt] = Unacknowledged(outcome, now, spooled=True)

    def _drain(self, event: events.Drain, now: float) -> None:
        self.draining = True
        for record in self.schedulers.values():
            self._spool(record, record.outcomes.values())

    def _tick(self, event: events.Tick, now: float) -> None:
        for kind, key in self._timers.take_due(now):
            if kind == "grant":
                grant = self.grants.get(key)  # type: ignore[call-overload]
                if grant is not None and grant.is_open:
                    self._end(grant, GrantStep.EXPIRE, "it was not renewed")
            elif kind == "spool":
                self._spool_late(now)
            else:
                self._granting.answer_late(now)

    # Links

    def _scheduler(self, peer: PeerId) -> SchedulerRecord:
        record = self.schedulers.get(peer)
        if record is None:
            record = self.schedulers[peer] = SchedulerRecord(peer)
        return record

    def _link_up(self, event: events.LinkUp, now: float) -> None:
        record = self._scheduler(event.peer)
        record.is_up = True
        mine = [grant for grant in self.grants.values() if grant.scheduler == event.peer]
        leases = [
            messages.HeldLease(one.id, one.shape, one.slots, one.window(self.settings))
            for one in mine
            if one.is_open
        ]
        attempts = [
            messages.HeldAttempt(
                held.id, held.job, held.index, held.grant.id, held.number, held.started_at
            )
            for held in record.held.values()
            if not held.killed
        ]
        register = messages.Register(
            version=messages.WIRE_VERSION,
            boot=self.boot,
            clock=now,
            name=self.name,
            capabilities=self.capabilities,
            free=self.ledger.free,
            addresses=self.addresses,
            leases=leases,
            attempts=attempts,
            outcomes=[one.outcome for one in record.outcomes.values()],
            software_version=self._software_version,
        )
        self.send(event.peer, register)

    def _link_down(self, event: events.LinkDown, now: float) -> None:
        """Not the end of anything: leases run on, and results wait on disk."""
        record = self._scheduler(event.peer)
        record.is_up = False
        self._granting.forget(event.peer)
        self._spool(record, record.outcomes.values())
        in_use = any(grant.scheduler == event.peer for grant in self.grants.values())
        if not record.outcomes and not record.held and not in_use:
            del self.schedulers[event.peer]

    def _received(self, event: events.Received, now: float) -> None:
        act = self._messages.get(type(event.message))
        if act is not None:
            act(event.peer, event.message, now)

    # Leases

    def _welcome(self, peer: PeerId, message: messages.Welcome, now: float) -> None:
        for lease in message.unknown_leases:
            grant = self._grant_of(peer, lease)
            if grant is not None and grant.is_open:
                self._end(grant, GrantStep.FORGET, "its holder does not know it")
        self._kill(peer, messages.Kill(message.kill), now)

    def _renew(self, peer: PeerId, message: messages.Renew, now: float) -> None:
        for lease in message.leases:
            grant = self._grant_of(peer, lease)
            if grant is not None and grant.is_open:
                grant.step(GrantStep.RENEW)
                ends_at = message.echo + self.settings.lease_seconds
                grant.ends_at = max(grant.ends_at, ends_at)
                self.watch("grant", grant.id, grant.ends_at)

    def _release(self, peer: PeerId, message: messages.Release, now: float) -> None:
        grant = self._grant_of(peer, message.lease)
        if grant is None or not grant.is_open:
            return
        if message.slots >= grant.slots:
            self._end(grant, GrantStep.RELEASE, "it was released")
            return
        grant.step(GrantStep.SHRINK)
        idle = [lane for lane in grant.lanes if lane.held == 0]
        for lane in idle[: message.slots]:
            self._close(grant, lane)

    def _grant_of(self, peer: PeerId, lease: LeaseId) -> Grant | None:
        grant = self.grants.get(lease)
        return grant if grant is not None and grant.scheduler == peer else None

    def _end(self, grant: Grant, step: GrantStep, reason: str) -> None:
        """What runs goes on; what has not started is dropped."""
        grant.step(step)
        self.unwatch("grant", grant.id)
        dropped = self._drop_waiting(grant)
        self.send(grant.scheduler, messages.LeaseOver(grant.id, reason))
        if dropped:
            self.send(grant.scheduler, messages.Returned(dropped, []))
        in_lanes = [
            held.run
            for held in self.held.values()
            if held.grant is grant and held.started_at is None
        ]
        if in_lanes:
            self.emit(WithdrawRuns(grant.shape.driver, in_lanes))
        self._close_idle_lanes(grant)

    def _drop_waiting(self, grant: Grant) -> list[AttemptId]:
        dropped = list(grant.waiting)
        grant.waiting.clear()
        for held in dropped:
            self._let_go(held)
        return [held.id for held in dropped]

    def _let_go(self, held: Held) -> None:
        del self.held[held.run]
        del self.schedulers[held.grant.scheduler].held[held.id]

    def _close_idle_lanes(self, grant: Grant) -> None:
        for lane in [lane for lane in grant.lanes if lane.held == 0]:
            self._close(grant, lane)
        if not grant.lanes and grant.state is GrantState.DRAINING:
            grant.step(GrantStep.EMPTY)
            del self.grants[grant.id]

    def _close(self, grant: Grant, lane: Lane) -> None:
        grant.lanes.remove(lane)
        self.ledger.give_back(lane.booking)
        self._granting.changed = True
        if lane.opened:
            self.emit(CloseLane(grant.shape.driver, lane.id))

    # Attempts

    def _assign(self, peer: PeerId, message: messages.Assign, now: float) -> None:
        first = message.bundles[0].first
        count = sum(len(bundle.indices) for bundle in message.bundles)
        grant = self._grant_of(peer, message.lease)
        if grant is None or not grant.is_open or self.draining:
            reason = "the worker is stopping" if self.draining else "the lease has ended"
            self.send(peer, messages.Refused(first, count, message.lease, reason))
            return
        for bundle in message.bundles:
            self._hold(grant, bundle)
        self.send(peer, messages.Accepted(message.lease, first, count))
        self._feed(grant)

    def _hold(self, grant: Grant, bundle: messages.Bundle) -> None:
        arguments = bundle.arguments or [b""] * len(bundle.indices)
        attempt: int = bundle.first
        of_scheduler = self.schedulers[grant.scheduler].held
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
            )
            self.held[held.run] = of_scheduler[held.id] = held
            grant.waiting.append(held)
            attempt += 1

    def _feed(self, grant: Grant) -> None:
        """Spreads what waits over the lanes: an idle lane first, then the shortest."""
        depth = 1 + grant.prefetch(self.settings)
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
            self.emit(RunAttempts(grant.shape.driver, lane.id, runs))

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
        )

    def _withdraw(self, peer: PeerId, message: messages.Withdraw, now: float) -> None:
        """What waits here goes back at once; what waits in a lane when the driver says so."""
        gone: list[AttemptId] = []
        record = self._scheduler(peer)
        for attempt in message.attempts:
            held = record.held.get(attempt)
            if held is None:
                if attempt not in record.outcomes:
                    gone.append(attempt)
            elif held.lane is None:
                held.grant.waiting.remove(held)
                self._let_go(held)
                gone.append(attempt)
            elif held.started_at is None:
                self.emit(WithdrawRuns(held.grant.shape.driver, [held.run]))
        if gone:
            self.send(peer, messages.Returned(gone, []))

    def _kill(self, peer: PeerId, message: messages.Kill, now: float) -> None:
        by_driver: dict[str, list[AttemptId]] = {}
        record = self._scheduler(peer)
        self._drop_outcomes(record, message.attempts)
        for attempt in message.attempts:
            held = record.held.get(attempt)
            if held is None:
                continue
            held.killed = True
            if held.lane is None:
                held.grant.waiting.remove(held)
                self._let_go(held)
            else:
                by_driver.setdefault(held.grant.shape.driver, []).append(held.run)
        for driver, runs in by_driver.items():
            self.emit(KillRuns(driver, runs))

    # What the drivers tell

    def _runs_started(self, event: events.RunsStarted, now: float) -> None:
        by_scheduler: dict[PeerId, list[tuple[AttemptId, float]]] = {}
        for run, started_at in event.attempts:
            held = self.held.get(run)
            if held is None:
                continue
            held.started_at = started_at
            held.grant.measure(max(self.settings.long_seconds, now - started_at))
            if held.lane is not None:
                held.lane.is_long = True
            by_scheduler.setdefault(held.grant.scheduler, []).append((held.id, started_at))
        for peer, started in by_scheduler.items():
            self.send(peer, messages.Started(now, started))

    def _runs_finished(self, event: events.RunsFinished, now: float) -> None:
        finished: dict[PeerId, list[Outcome]] = {}
        grants: dict[LeaseId, Grant] = {}
        for bare in event.outcomes:
            held = self.held.get(bare.attempt)
            if held is None:
                continue
            self._let_go(held)
            grant = held.grant
            grants[grant.id] = grant
            self._leave_lane(held)
            if held.killed:
                continue
            grant.measure(max(0.0, bare.ended_at - bare.started_at))
            outcome = self._outcome(held, bare)
            record = self._scheduler(grant.scheduler)
            record.outcomes[outcome.attempt] = Unacknowledged(outcome, now, spooled=False)
            finished.setdefault(grant.scheduler, []).append(outcome)
        for peer, outcomes in finished.items():
            windows = [self._window(one) for one in grants.values() if one.scheduler == peer]
            self.send(peer, messages.Results(now, outcomes, windows))
            record = self._scheduler(peer)
            if record.is_up:
                self.watch("spool", None, now + self.settings.spool_after_seconds)
            else:
                self._spool(record, (record.outcomes[one.attempt] for one in outcomes))
        self._after(grants.values())

    def _outcome(self, held: Held, bare: Outcome) -> Outcome:
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
            bare.stdout,
            bare.stderr,
            bare.started_at,
            bare.ended_at,
            held.number,
        )

    def _window(self, grant: Grant) -> Window:
        return Window(grant.id, grant.window(self.settings))

    def _runs_returned(self, event: events.RunsReturned, now: float) -> None:
        """Something long runs in that lane: what waited there goes to a lane that is free, or
        back to its scheduler."""
        grants: dict[LeaseId, Grant] = {}
        for run in reversed(event.attempts):
            held = self.held.get(run)
            if held is None:
                continue
            self._leave_lane(held)
            grants[held.grant.id] = held.grant
            if held.killed:
                self._let_go(held)
            else:
                held.grant.waiting.appendleft(held)
        for grant in grants.values():
            if grant.is_open:
                self._feed(grant)
            self._send_back(grant)
        self._after(grants.values())

    def _send_back(self, grant: Grant) -> None:
        if not grant.waiting:
            return
        back = self._drop_waiting(grant)
        self.send(grant.scheduler, messages.Returned(back, [self._window(grant)]))

    def _runs_withdrawn(self, event: events.RunsWithdrawn, now: float) -> None:
        by_scheduler: dict[PeerId, list[AttemptId]] = {}
        grants: dict[LeaseId, Grant] = {}
        for run in event.attempts:
            held = self.held.get(run)
            if held is None:
                continue
            self._let_go(held)
            self._leave_lane(held)
            grants[held.grant.id] = held.grant
            if not held.killed:
                by_scheduler.setdefault(held.grant.scheduler, []).append(held.id)
        for peer, attempts in by_scheduler.items():
            self.send(peer, messages.Returned(attempts, []))
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
                self._close_idle_lanes(grant)

    # Outcomes that wait for their acknowledgement

    def _acknowledge(self, peer: PeerId, message: messages.Acknowledge, now: float) -> None:
        record = self.schedulers.get(peer)
        if record is not None:
            self._drop_outcomes(record, message.attempts)

    def _drop_outcomes(self, record: SchedulerRecord, attempts: Iterable[AttemptId]) -> None:
        spooled = []
        for attempt in attempts:
            waiting = record.outcomes.pop(attempt, None)
            if waiting is not None and waiting.spooled:
                spooled.append(attempt)
        if spooled:
            self.emit(UnspoolOutcomes(record.peer, spooled))

    def _spool_late(self, now: float) -> None:
        patience = self.settings.spool_after_seconds
        oldest: float | None = None
        for record in self.schedulers.values():
            late = []
            for one in record.outcomes.values():
                if one.spooled:
                    continue
                if one.since + patience <= now:
                    late.append(one)
                elif oldest is None or one.since < oldest:
                    oldest = one.since
            self._spool(record, late)
        if oldest is not None:
            self.watch("spool", None, oldest + patience)

    def _spool(self, record: SchedulerRecord, outcomes: Iterable[Unacknowledged]) -> None:
        fresh = [one for one in outcomes if not one.spooled]
        for one in fresh:
            one.spooled = True
        if fresh:
            self.emit(SpoolOutcomes(record.peer, [one.outcome for one in fresh]))
