"""The worker's node: the machine, its drivers, its spool, and the schedulers it knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from blake3 import blake3

from mycel.blobs.blob_messages import BLOB_PROTOCOL
from mycel.blobs.blob_streams import Channels
from mycel.core.effects import (
    CheckpointAnswered,
    CloseLane,
    Dial,
    Effect,
    Emptied,
    Hangup,
    KillRuns,
    Note,
    Part,
    RunAttempts,
    Send,
    SendAhead,
    SpoolOutcomes,
    UnspoolOutcomes,
    WithdrawRuns,
)
from mycel.core.events import (
    Drain,
    Reachable,
    RunsFinished,
    RunsReturned,
    RunsStarted,
    RunsStreamed,
    RunsWithdrawn,
    RunsWrote,
    Serving,
    Shut,
    SpoolLoaded,
)
from mycel.core.identifiers import AttemptId, LaneId, PeerId
from mycel.core.messages import Outcome, PeerRecord, Text
from mycel.core.model.resources import ServedModel
from mycel.core.principal import Family
from mycel.core.worker import WorkerMachine
from mycel.core.worker.availability import STOP
from mycel.discovery.methods import Ways
from mycel.discovery.peer_book import PeerBook
from mycel.discovery.publisher import Publishing
from mycel.drivers.interface import Driver, Finished
from mycel.membership.arrival import Arrival
from mycel.membership.member import Member, NoteLine
from mycel.membership.protocols import SIGNAL_PROTOCOL, schedulers_topic
from mycel.membership.revocations import Revoking
from mycel.runtime.clock import Clock
from mycel.runtime.runtime import Runtime
from mycel.swarm import message_codec
from mycel.swarm.interface import Admission, DialFailure, Stream, Swarm
from mycel.swarm.multiaddress import peer_in

from .output_allowance import Allowance
from .report_relay import ReportRelay

ROLE: Final = "worker"
RETRY_SECONDS_MIN: Final = 0.1
RETRY_SECONDS_MAX: Final = 5.0
SCHEDULERS_MAX: Final = 256
"""So many schedulers are remembered; a swarm has few. Half may have joined by one invite."""
FORGET_AFTER_FAILURES: Final = 200


class SpoolFile(Protocol):
    def raise_boot(self) -> int: ...
    def load(self) -> list[tuple[str, int, bytes]]: ...
    def set_aside(self, scheduler: str, attempt: int) -> str: ...
    def keep(self, records: list[tuple[str, int, bytes]]) -> list[tuple[str, int, bytes]]: ...
    def drop(self, scheduler: str, attempts: list[int]) -> None: ...


class Known:
    """A scheduler that this worker has heard of."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        self.delay = RETRY_SECONDS_MIN
        self.failures = 0
        self.is_due = False
        self.heard_by = ""
        self.has_called = False
        """It wants a link, however it was found."""
        self.resting_until = 0.0
        """It has no use for this worker before, unless it calls."""


class WorkerNode(Member):
    def __init__(
        self,
        machine: WorkerMachine,
        clock: Clock,
        spool: SpoolFile,
        *,
        swarm_name: str,
        gateways: tuple[str, ...],
        ways: Ways,
        publishing: Publishing,
        note: NoteLine,
        failed: Callable[[BaseException], None],
        alarm: NoteLine | None = None,
        book: PeerBook | None = None,
        reserves: bool = False,
        revoking: Revoking | None = None,
        arrival: Arrival | None = None,
        blobs: Channels | None = None,
    ) -> None:
        perform: Mapping[type[Effect], Callable[[Any], None]] = {
            Send: self.send,
            SendAhead: self.send,
            Dial: self.dial,
            Hangup: self.hang_up,
            Note: self.note,
            Part: self._part,
            RunAttempts: self._run,
            WithdrawRuns: lambda effect: self._withdraw(effect),
            KillRuns: lambda effect: self._kill(effect),
            CloseLane: lambda effect: self._close_lane(effect),
            SpoolOutcomes: self._keep,
            UnspoolOutcomes: self._drop,
            Emptied: lambda _: self._emptied.set(),
            CheckpointAnswered: lambda effect: self.reporting.answered(effect),
        }
        self.runtime = Runtime(machine, clock, None, perform, failed)
        revoking = revoking or Revoking(swarm_name, note)
        super().__init__(
            clock,
            (ROLE,),
            gateways,
            note,
            self.runtime,
            revoking,
            book,
            reserves=reserves,
            arrival=arrival,
            blobs=blobs,
        )
        self._spool = spool
        self._alarm = alarm or note
        self._topic = schedulers_topic(swarm_name)
        self._ways = ways
        self._publishing = publishing
        self._drivers: dict[str, Driver] = {}
        self._known: dict[PeerId, Known] = {}
        self._allowance = Allowance()
        self._emptied = asyncio.Event()
        self.reporting = ReportRelay(clock, self.runtime.post, lambda data: blake3(data).digest())

    def start(self, swarm: Swarm, drivers: list[Driver]) -> None:
        self._drivers = {driver.name: driver for driver in drivers}
        self.runtime.post(Reachable(tuple(swarm.addresses)))
        outcomes: dict[PeerId, list[Outcome]] = {}
        for scheduler, attempt, payload in self._spool.load():
            try:
                outcome = message_codec.decode_outcome(payload)
            except message_codec.MalformedFrame as error:
                kept_at = self._spool.set_aside(scheduler, attempt)
                told = {"scheduler": scheduler, "attempt": attempt, "kept_at": kept_at}
                self._alarm("spool_row_set_aside", error=str(error), **told)
                continue
            outcomes.setdefault(PeerId(scheduler), []).append(outcome)
        boot = self._spool.raise_boot()
        self.runtime.post(SpoolLoaded(boot, outcomes))
        if self._ways.gossip:
            swarm.subscribe(self._topic)
        self.join(swarm)
        if self._ways.dht:
            self._publishing.start(swarm, boot)

    async def wind_down(self, grace_seconds: float, hurried: asyncio.Event) -> None:
        """Takes no new work, and lets what runs finish; what does not within the grace is
        handed back. Ends at once when it is hurried."""
        self._publishing.stop()
        self.runtime.post(Shut(STOP, "it is about to stop", grace_seconds))
        waits = [asyncio.ensure_future(event.wait()) for event in (self._emptied, hurried)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def drain(self) -> None:
        """Results that nobody has acknowledged go to disk; nothing more is granted, and what
        the drivers end from now on is handed back."""
        self._publishing.stop()
        self.runtime.post(Drain())

    def serve(self, models: tuple[ServedModel, ...]) -> None:
        """These are served from now on, and no others."""
        self._publishing.serves(models)
        self.runtime.post(Serving(models))

    def stop(self) -> None:
        self._publishing.stop()
        self.leave()
        self.runtime.stop()

    # Schedulers

    def peer_found(self, record: PeerRecord, source: str = "gateway") -> None:
        peer = PeerId(record.peer)
        if "scheduler" not in record.roles or not self.is_started or peer == self.swarm.peer:
            return
        known = self._known.get(peer)
        if known is None:
            if len(self._known) >= SCHEDULERS_MAX:
                return
            known = self._known[peer] = Known(record.addresses)
            known.heard_by = source
        known.addresses = record.addresses or known.addresses
        self._approach(peer)

    def heard(self, topic: str, source: PeerId, data: bytes) -> None:
        try:
            announcement = message_codec.decode_announcement(data)
        except message_codec.MalformedFrame as error:
            self._accuse(source, str(error))
            return
        if announcement.me.peer == source:  # who speaks for another is not heard
            self.peer_found(announcement.me, "gossip")

    def heard_by(self, peer: PeerId) -> str:
        known = self._known.get(peer)
        return "" if known is None else known.heard_by

    def summoned(self, peer: PeerId) -> None:
        if "scheduler" in self.roles_of(peer):
            known = self._known.setdefault(peer, Known(()))
            known.resting_until = 0.0
            known.has_called = True
            known.heard_by = "call"
            self._approach(peer)

    def _part(self, effect: Part) -> None:
        """The link ends in order; this worker shows itself again after a while."""
        known = self._known.get(effect.peer)
        if known is not None:
            known.resting_until = self._clock.now() + effect.come_back_seconds
            self._clock.call_at(known.resting_until, lambda: self._approach(effect.peer))
        if effect.reason:
            self._note("not_wanted", scheduler=effect.peer, reason=effect.reason)
            if self._arrival is not None:
                text = f"the scheduler {effect.peer} has no use for this worker: {effect.reason}"
                self._arrival.warn_of(f"{text}; use the same release on all machines")
        self._links.hang_up(effect.peer, "the scheduler has no use for this worker now")

    def _approach(self, peer: PeerId) -> None:
        """Brings this worker closer to a link with that scheduler, by one step."""
        known = self._known.get(peer)
        if known is None or not self.is_started or self._links.is_linked(peer):
            return
        if self._clock.now() < known.resting_until:
            return
        if not self._ways.gossip and not known.has_called:
            return  # it finds us, if it looks for one like us
        if peer in self._connected:
            if self.is_partner(peer):
                self._links.open(self.swarm, peer)
            else:
                del self._known[peer]  # it said so, and its token does not
            return
        if known.addresses and not self.dial_all(peer, known.addresses):
            del self._known[peer]  # until somebody says where it really is

    def _approach_later(self, peer: PeerId) -> None:
        known = self._known.get(peer)
        if known is None or known.is_due:
            return
        known.is_due = True

        def due() -> None:
            known.is_due = False
            self._approach(peer)

        self._clock.call_at(self._clock.now() + known.delay, due)
        known.delay = min(2 * known.delay, RETRY_SECONDS_MAX)

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        super().connected(peer, admission, address, relayed)
        if "scheduler" in admission.roles:
            if peer not in self._known and self._has_place(admission.family):
                known = self._known[peer] = Known(())
                known.heard_by = "connection"
            self._approach(peer)

    def _has_place(self, family: Family | None) -> bool:
        """For a scheduler that has shown its token: before it one goes that somebody named and
        nobody has met, or anybody could fill the list with names."""
        connected = self._connected
        known = [connected[peer].family for peer in self._known if peer in connected]
        if family is not None and known.count(family) >= SCHEDULERS_MAX // 2:
            return False
        if len(self._known) < SCHEDULERS_MAX:
            return True
        unmet = [peer for peer in self._known if peer not in connected]
        if unmet:
            del self._known[max(unmet, key=lambda peer: self._known[peer].failures)]
        return bool(unmet)

    def path_changed(self, peer: PeerId, address: str, relayed: bool) -> None:
        """A link through a relay moves when there is a direct way: what is heavy goes there.
        Nothing is lost by it: a link begins with all that the worker has."""
        super().path_changed(peer, address, relayed)
        if not relayed and self._links.is_up(peer) and self.is_started:
            self._links.hang_up(peer, "there is a direct way now")
            self._links.open(self.swarm, peer)

    def addresses_changed(self) -> None:
        super().addresses_changed()
        if self.is_started:
            self.runtime.post(Reachable(tuple(self.swarm.addresses)))
            self._publishing.changed()

    def disconnected(self, peer: PeerId, cause: str) -> None:
        super().disconnected(peer, cause)
        self._approach_later(peer)

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        if self._arrival is not None:
            self._arrival.dial_failed(address, failure, error, refusal)
        if address.startswith("/p2p/"):
            self._blobs_unreachable(address, error)
        peer = self._dialled(address, failure) or peer_in(address)
        self._joining.dial_failed(address, failure)
        known = self._known.get(peer) if peer is not None else None
        if peer is None or known is None:
            return
        known.failures += 1
        if known.failures >= FORGET_AFTER_FAILURES:
            del self._known[peer]
        else:
            self._approach_later(peer)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        super().stream_opened(stream, ours)
        known = self._known.get(stream.peer)
        if known is not None and self._links.is_up(stream.peer):
            known.delay = RETRY_SECONDS_MIN
            known.failures = 0

    def stream_failed(self, peer: PeerId, protocol: str, error: str) -> None:
        super().stream_failed(peer, protocol, error)
        if protocol not in (SIGNAL_PROTOCOL, BLOB_PROTOCOL):
            self._approach_later(peer)

    def stream_closed(self, stream: Stream, error: str) -> None:
        super().stream_closed(stream, error)
        if stream.protocol not in (SIGNAL_PROTOCOL, BLOB_PROTOCOL):
            self._approach_later(stream.peer)

    # Drivers: effects to them, and what they tell

    def _run(self, effect: RunAttempts) -> None:
        self._drivers[effect.driver].submit(effect.lane, effect.runs)

    def _withdraw(self, effect: WithdrawRuns) -> None:
        self._drivers[effect.driver].withdraw(effect.attempts)

    def _kill(self, effect: KillRuns) -> None:
        self._drivers[effect.driver].kill(effect.attempts)

    def _close_lane(self, effect: CloseLane) -> None:
        self._drivers[effect.driver].close_lane(effect.lane)

    def started(self, attempts: list[tuple[AttemptId, float]]) -> None:
        self.runtime.post(RunsStarted(attempts))

    def streamed(self, attempt: AttemptId, piece: bytes) -> None:
        self.runtime.post(RunsStreamed([(attempt, piece)]))
        self.runtime.turn_now()

    def wrote(self, texts: list[Text]) -> None:
        told = self._allowance.allowed(texts, self._clock.now())
        if told:
            self.runtime.post(RunsWrote(told))

    def finished(self, finished: list[Finished]) -> None:
        if self.reporting.is_busy:
            for one in finished:
                self.reporting.ended(one.attempt)
        self.runtime.post(RunsFinished(finished))
        self.runtime.turn_now()

    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None:
        self.runtime.post(RunsReturned(lane, attempts))

    def withdrawn(self, attempts: list[AttemptId]) -> None:
        self.runtime.post(RunsWithdrawn(attempts))

    # The spool

    def _keep(self, effect: SpoolOutcomes) -> None:
        records = [
            (str(effect.scheduler), int(one.attempt), message_codec.encode_outcome(one))
            for one in effect.outcomes
        ]
        refused = self._spool.keep(records)
        if refused:
            self._note("spool_full", scheduler=effect.scheduler, results=len(refused))

    def _drop(self, effect: UnspoolOutcomes) -> None:
        self._spool.drop(effect.scheduler, [int(attempt) for attempt in effect.attempts])
