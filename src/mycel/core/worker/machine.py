"""The worker: the authority over its own resources.

    Register ─▶ Introduce ─▶ Assign ─▶ book ─▶ lanes ─▶ driver ─▶ Results
                                │                 │
                      Refused, with a code    50 ms: Started, and Returned for
                                              what waits behind

A registration ends at the reading of this worker's own clock that its last renewal echoed, plus
its length: a renewal that was written before a freeze extends nothing after it. When it ends, what
runs goes on and keeps its slice; what has not started is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mycel.core import events, messages
from mycel.core.effects import Effect, Part, Send
from mycel.core.events import Event
from mycel.core.identifiers import AttemptId, PeerId
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import ControlMessage, WorkMessage
from mycel.core.messages.refusals import UNSUITABLE
from mycel.core.model.resources import Capabilities, Ledger, Usage
from mycel.core.model.work import Shape
from mycel.core.rights import Inspect
from mycel.core.timers import Timers
from mycel.core.worker.served_models import with_served

from . import authorization, availability, lane_table, load_reports, registrations
from .attempt_reports import Reporting
from .authorization import NO_RULES, AcceptRules, Authority
from .availability import STOP, Closing
from .execution import Running
from .lane_table import LaneTable
from .load_reports import LoadReports
from .outcomes import Outcomes
from .records import Held, Objection, SchedulerRecord, ShapeLanes, Unacknowledged
from .registrations import Registrations


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
        self.lanes: dict[tuple[PeerId, Shape], ShapeLanes] = {}
        self.held: dict[AttemptId, Held] = {}
        """By this worker's own run number, which is what drivers know an attempt by."""
        self.usage: Usage | None = None
        """What of its machine is in use, by whomever."""
        self.boot = 0
        self._timers: Timers[tuple[str, object]] = Timers()
        self._effects: list[Effect] = []
        self.loads = LoadReports(self)
        self.registrations = Registrations(self, software_version)
        self.lane_table = LaneTable(self)
        self.authority = Authority(self, inspect, rules)
        self._outcomes = Outcomes(self)
        self.closing = Closing(self)
        self._reporting = Reporting(self)
        self.running = Running(self, self.lane_table, self._outcomes, digest)
        self._due: dict[str, Callable[[object, float], None]] = {
            registrations.TIMER: self.registrations.expired,
            lane_table.TIMER: self.lane_table.due,
            load_reports.TIMER: self.loads.due,
            authorization.TIMER: self.authority.due,
            availability.TIMER: self.closing.due,
            "confirm": self.running.confirm,
            "spool": self._outcomes.keep_late,
        }
        self._handlers: dict[type[Event], Callable[..., None]] = {
            events.SpoolLoaded: self._spool_loaded,
            events.Tick: self._tick,
            events.LinkUp: self._link_up,
            events.LinkDown: self._link_down,
            events.Received: self._received,
            events.RunsStarted: self.running.runs_started,
            events.RunsFinished: self.running.runs_finished,
            events.RunsReturned: self.running.runs_returned,
            events.RunsStreamed: self.running.runs_streamed,
            events.RunsWrote: self.running.runs_wrote,
            events.RunsProgressed: self._reporting.progressed,
            events.RunCheckpointed: self._reporting.checkpointed,
            events.RunWantsCheckpoint: self._reporting.wanted,
            events.RunsWithdrawn: self.running.runs_withdrawn,
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
            messages.Introduce: self.running.introduced,
            messages.Assign: self.running.assign,
            messages.Withdraw: self.running.withdraw,
            messages.Kill: self.running.kill,
            messages.Acknowledge: self._outcomes.acknowledged,
            messages.Fetch: self._outcomes.fetched,
            messages.Renew: self.registrations.renew,
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
            self.loads.settle(now)
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
        """Tasks for a model that is gone go back; what runs finds out itself."""
        capabilities = with_served(self.capabilities, event.models)
        if capabilities == self.capabilities:
            return
        self.capabilities = capabilities
        self.ledger.rename(capabilities.custom)
        answering = {model.name for model in event.models if model.slots}
        for lanes in list(self.lanes.values()):
            model, against = lanes.shape.model, lanes.objection
            if lanes.shape.driver != "model":
                continue
            if model not in answering and against is None:
                gone = Objection(UNSUITABLE, f"{model} is not served any more")
                self.running.object_to(lanes, gone)
            elif model in answering and against is not None and against.code == UNSUITABLE:
                lanes.objection = None
                self.authority.check(lanes, now)  # its right may have ended meanwhile
        self._tell_description()

    def _tell_description(self) -> None:
        for record in self.schedulers.values():
            if record.is_up:
                record.told = None
                free = self.loads.room_for(record)
                self.send(
                    record.peer,
                    messages.Described(self.capabilities, free, self.addresses, load_follows=True),
                )
        self.loads.changed = True

    def _usage_changed(self, event: events.UsageChanged, now: float) -> None:
        self.usage = event.usage
        self.loads.tell(now)

    def _drain(self, event: events.Drain, now: float) -> None:
        self.closing.shut(events.Shut(STOP, "it stops"), now)
        for held in self.held.values():
            held.handed_back = True  # the drivers are about to end all that runs
        for record in self.schedulers.values():
            self._outcomes.keep(record, record.outcomes.values())

    def _tick(self, event: events.Tick, now: float) -> None:
        for kind, key in self._timers.take_due(now):
            self._due[kind](key, now)

    # Links

    def scheduler(self, peer: PeerId) -> SchedulerRecord:
        record = self.schedulers.get(peer)
        if record is None:
            record = self.schedulers[peer] = SchedulerRecord(peer)
        return record

    def _link_up(self, event: events.LinkUp, now: float) -> None:
        record = self.scheduler(event.peer)
        record.is_up = True
        self.registrations.register(record, now, event.heard_by)

    def _link_down(self, event: events.LinkDown, now: float) -> None:
        """Not the end of anything: the registration runs on, and results wait on disk."""
        record = self.scheduler(event.peer)
        record.is_up = False
        self._outcomes.keep(record, record.outcomes.values())
        self.forget_if_done(record)

    def forget_if_done(self, record: SchedulerRecord) -> None:
        """A scheduler without a link of which there is nothing here."""
        if not record.is_up and not record.outcomes and not record.held:
            self.registrations.end(record)
            self.running.forget(record)
            self.schedulers.pop(record.peer, None)

    def _received(self, event: events.Received, now: float) -> None:
        act = self._messages.get(type(event.message))
        if act is not None:
            act(event.peer, event.message, now)

    def _dismissed(self, peer: PeerId, message: messages.Dismiss, now: float) -> None:
        """Not if there is still something between us: then that scheduler errs, and we stay."""
        record = self.schedulers.get(peer)
        if record is not None and not record.held and not record.outcomes:
            self.emit(Part(peer, message.come_back_seconds, message.reason))

    def _welcome(self, peer: PeerId, message: messages.Welcome, now: float) -> None:
        record = self.scheduler(peer)
        record.is_welcome = True
        if record.is_behind:
            self.loads.changed = True
        self.running.kill(peer, messages.Kill(message.kill), now)
