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

from collections.abc import Callable
from typing import Final

from mycel.core import events, messages
from mycel.core.effects import Effect, Part, Send
from mycel.core.events import Event
from mycel.core.identifiers import AttemptId, LeaseId, PeerId
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import ControlMessage, WorkMessage
from mycel.core.model.resources import Capabilities, Ledger, Usage
from mycel.core.rights import Inspect
from mycel.core.states import GrantStep
from mycel.core.timers import Timers
from mycel.core.worker.served_models import with_served

from .attempt_reports import Reporting
from .authorization import NO_RULES, TIMER, AcceptRules, Authority
from .availability import STOP, Closing
from .availability import TIMER as HAND_BACK
from .execution import Running
from .granted_leases import Grants
from .lease_requests import Granting
from .outcomes import Outcomes
from .records import Grant, Held, SchedulerRecord, Unacknowledged


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
        inspect: Inspect | None = None,
        rules: AcceptRules = NO_RULES,
    ) -> None:
        self.settings: Final = settings
        self.capabilities = capabilities
        self.name: Final = name
        self.tariff: Final = capabilities.price
        self.ledger: Final = Ledger(capabilities)
        self.addresses: tuple[str, ...] = ()
        self.schedulers: dict[PeerId, SchedulerRecord] = {}
        self.grants: dict[LeaseId, Grant] = {}
        self.held: dict[AttemptId, Held] = {}
        """By this worker's own run number, which is what drivers know an attempt by."""
        self.usage: Usage | None = None
        """What of its machine is in use, by whomever."""
        self.boot = 0
        self._software_version = software_version
        self._timers: Timers[tuple[str, object]] = Timers()
        self._effects: list[Effect] = []
        self.granting = Granting(self)
        self._granted = Grants(self)
        self.authority = Authority(self, self._granted, inspect, rules)
        self._outcomes = Outcomes(self)
        self.closing = Closing(self, self._granted)
        self._reporting = Reporting(self)
        self._running = Running(self, self._granted, self._outcomes, digest)
        self._handlers: dict[type[Event], Callable[..., None]] = {
            events.SpoolLoaded: self._spool_loaded,
            events.Tick: self._tick,
            events.LinkUp: self._link_up,
            events.LinkDown: self._link_down,
            events.Received: self._received,
            events.RunsStarted: self._running.runs_started,
            events.RunsFinished: self._running.runs_finished,
            events.RunsReturned: self._running.runs_returned,
            events.RunsStreamed: self._running.runs_streamed,
            events.RunsWrote: self._running.runs_wrote,
            events.RunsProgressed: self._reporting.progressed,
            events.RunCheckpointed: self._reporting.checkpointed,
            events.RunWantsCheckpoint: self._reporting.wanted,
            events.RunsWithdrawn: self._running.runs_withdrawn,
            events.Reachable: self._reachable,
            events.Serving: self._serving,
            events.UsageChanged: self._usage_changed,
            events.Shut: self.closing.shut,
            events.Reopen: self.closing.reopen,
            events.Drain: self._drain,
            events.WallClock: self.authority.wall_clock,
            events.Revoked: self.authority.revoked,
        }
        self._messages: dict[type[messages.Message], Callable[..., None]] = {
            messages.Welcome: self._welcome,
            messages.Dismiss: self._dismissed,
            messages.Assign: self._running.assign,
            messages.Withdraw: self._running.withdraw,
            messages.Kill: self._running.kill,
            messages.Acknowledge: self._outcomes.acknowledged,
            messages.Fetch: self._outcomes.fetched,
            messages.Renew: self._granted.renew,
            messages.Release: self._granted.release,
            messages.Request: self.granting.requested,
            messages.Close: self.closing.asked,
            messages.CheckpointPart: self._reporting.answered,
            messages.CheckpointTaken: self._reporting.answered,
        }

    @property
    def wake_at(self) -> float | None:
        return self._timers.wake_at

    def handle(self, event: Event, now: float, *, more: bool = False) -> list[Effect]:
        """`more` is for a scheduler's machine."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event, now)
            self.granting.settle(now)
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
            record = self.scheduler(peer)
            for outcome in outcomes:
                record.outcomes[outcome.attempt] = Unacknowledged(outcome, now, spooled=True)

    def _reachable(self, event: events.Reachable, now: float) -> None:
        if event.addresses != self.addresses:
            self.addresses = event.addresses
            self._tell_description()

    def _serving(self, event: events.Serving, now: float) -> None:
        """Leases for a model that is gone end; what still runs under them finds out itself."""
        capabilities = with_served(self.capabilities, event.models)
        if capabilities == self.capabilities:
            return
        self.capabilities = capabilities
        self.ledger.rename(capabilities.custom)
        answering = {model.name for model in event.models if model.slots}
        for grant in list(self.grants.values()):
            model = grant.shape.model
            if grant.is_open and grant.shape.driver == "model" and model not in answering:
                self._granted.end(grant, GrantStep.EXPIRE, f"{model} is not served any more")
        self._tell_description()
        self.granting.changed = True

    def _tell_description(self) -> None:
        free = self.ledger.free
        described = messages.Described(self.capabilities, free, self.addresses, load_follows=True)
        for record in self.schedulers.values():
            if record.is_up:
                record.told = None
                self.send(record.peer, described)
        self.granting.changed = True

    def _usage_changed(self, event: events.UsageChanged, now: float) -> None:
        self.usage = event.usage
        self.granting.tell_load(now)

    def _drain(self, event: events.Drain, now: float) -> None:
        self.closing.shut(events.Shut(STOP, "it stops"), now)
        for held in self.held.values():
            held.handed_back = True  # the drivers are about to end all that runs
        for record in self.schedulers.values():
            self._outcomes.keep(record, record.outcomes.values())

    def _tick(self, event: events.Tick, now: float) -> None:
        for kind, key in self._timers.take_due(now):
            if kind == "grant":
                grant = self.grants.get(key)  # type: ignore[call-overload]
                if grant is not None and grant.is_open:
                    self._granted.end(grant, GrantStep.EXPIRE, "it was not renewed")
            elif kind == "tell":
                self.granting.tell_load(now)
            elif kind == TIMER:
                grant = self.grants.get(key)  # type: ignore[call-overload]
                if grant is not None:
                    self.authority.check(grant, now)
            elif kind == HAND_BACK:
                self.closing.due(now)
            elif kind == "confirm":
                self._running.confirm()
            elif kind == "spool":
                self._outcomes.keep_late(now)
            else:
                self.granting.answer_late(now)

    # Links

    def scheduler(self, peer: PeerId) -> SchedulerRecord:
        record = self.schedulers.get(peer)
        if record is None:
            record = self.schedulers[peer] = SchedulerRecord(peer)
        return record

    def _link_up(self, event: events.LinkUp, now: float) -> None:
        record = self.scheduler(event.peer)
        record.is_up, record.is_welcome, record.is_behind = True, False, False
        mine = [grant for grant in self.grants.values() if grant.scheduler == event.peer]
        leases = [
            messages.HeldLease(
                one.id, one.shape, one.slots, one.window(self.settings), self.tariff.floor, one.rate
            )
            for one in mine
            if one.is_open
        ]
        attempts = [
            messages.HeldAttempt(
                held.id,
                held.job,
                held.index,
                held.grant.id,
                held.number,
                held.started_at,
                held.authenticator,
            )
            for held in record.held.values()
            if not held.killed
        ]
        limit = self.settings.inline_bytes_max
        told = [messages.announced(one.outcome, limit) for one in record.outcomes.values()]
        parts = list(messages.in_parts(told))
        later = [outcome for part in parts[1:] for outcome in part]
        attempts += [
            messages.HeldAttempt(
                one.attempt,
                one.job,
                one.index,
                LeaseId(0),
                one.number,
                one.started_at,
                one.authenticator,
            )
            for one in later
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
            outcomes=parts[0] if parts else [],
            software_version=self._software_version,
            heard_by=event.heard_by,
            closed_for=self.closing.reason,
            usage=self.usage,
        )
        record.told, record.told_usage = register.free, self.usage
        self.send(event.peer, register)
        for part in parts[1:]:
            self.send(event.peer, messages.Results(now, part, []))

    def _link_down(self, event: events.LinkDown, now: float) -> None:
        """Not the end of anything: leases run on, and results wait on disk."""
        record = self.scheduler(event.peer)
        record.is_up = False
        self.granting.forget(event.peer)
        self._outcomes.keep(record, record.outcomes.values())
        in_use = any(grant.scheduler == event.peer for grant in self.grants.values())
        if not record.outcomes and not record.held and not in_use:
            del self.schedulers[event.peer]

    def _received(self, event: events.Received, now: float) -> None:
        act = self._messages.get(type(event.message))
        if act is not None:
            act(event.peer, event.message, now)

    def _dismissed(self, peer: PeerId, message: messages.Dismiss, now: float) -> None:
        """Not if there is still something between us: then that scheduler errs, and we stay."""
        record = self.schedulers.get(peer)
        in_use = any(grant.scheduler == peer for grant in self.grants.values())
        if record is not None and not record.held and not record.outcomes and not in_use:
            self.emit(Part(peer, message.come_back_seconds, message.reason))

    def _welcome(self, peer: PeerId, message: messages.Welcome, now: float) -> None:
        record = self.scheduler(peer)
        record.is_welcome = True
        if record.is_behind:
            self.granting.changed = True
        for lease in message.unknown_leases:
            grant = self._granted.of(peer, lease)
            if grant is not None and grant.is_open:
                self._granted.end(grant, GrantStep.FORGET, "its holder does not know it")
        self._running.kill(peer, messages.Kill(message.kill), now)
