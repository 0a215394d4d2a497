"""The scheduler's node: the machine, its journal, its links and its announcements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol

import msgspec

from mycel.blobs.blob_streams import Channels
from mycel.core.effects import (
    Announce,
    Check,
    Dial,
    Effect,
    Hangup,
    JobsAdvanced,
    JobsForgotten,
    KeepCheckpoint,
    Note,
    Part,
    ReadCheckpoint,
    Reply,
    Seek,
    Send,
    SendAhead,
    TaskLeft,
    TaskStreamed,
    TaskWrote,
    Tell,
)
from mycel.core.events import (
    Event,
    Reconfigure,
    Restart,
    RoundTrip,
    WorkerIsLocal,
    WorkersSeen,
    WorkerWithdrawn,
)
from mycel.core.identifiers import PeerId
from mycel.core.journal import EntryRefused
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.messages import (
    Announcement,
    Assign,
    CheckpointPart,
    CheckpointTaken,
    Close,
    Dismiss,
    Introduce,
    PeerRecord,
)
from mycel.core.scheduler import Scheduler
from mycel.discovery.methods import Ways
from mycel.discovery.peer_book import PeerBook
from mycel.discovery.survey import Survey
from mycel.discovery.worker_search import Searching
from mycel.membership.arrival import Arrival
from mycel.membership.member import Member, NoteLine
from mycel.membership.probes import Checks
from mycel.membership.protocols import schedulers_topic
from mycel.membership.revocations import Revoking
from mycel.runtime.busy_poll import BusyPoll
from mycel.runtime.clock import Clock
from mycel.runtime.runtime import Runtime
from mycel.store.checkpoints import Checkpoints, Found, MemoryCheckpoints, Taken
from mycel.store.interface import Journal
from mycel.swarm import message_codec
from mycel.swarm.interface import Admission, DialFailure, SignedRecord, Stream, Swarm

from .job_credentials import Credentials

ROLE: Final = "scheduler"
LOOPBACK: Final = ("/ip4/127.", "/ip6/::1/")
"""Whoever comes from there is on this machine."""
ANNOUNCE_AGAIN_SECONDS: Final = (0.1, 0.2)
"""After a gateway is met: who came to it at the same moment may have been too late to hear."""
ANNOUNCE_SECONDS_MIN: Final = 1.0
"""However much work arrives after idleness, it is announced no more often."""
PART_SECONDS: Final = 5.0
"""A worker that was asked to go and has not by then is hung up."""


class Clients(Protocol):
    """Where answers go."""

    def reply(self, effect: Reply) -> None: ...
    def advanced(self, effect: JobsAdvanced) -> None: ...
    def told(self, effect: Tell) -> None: ...
    def streamed(self, effect: TaskStreamed) -> None: ...
    def wrote(self, effect: TaskWrote) -> None: ...
    def left(self, effect: TaskLeft) -> None: ...
    def forgotten(self, effect: JobsForgotten) -> None: ...


class SchedulerNode(Member):
    def __init__(
        self,
        machine: Scheduler,
        clock: Clock,
        journal: Journal,
        clients: Clients,
        *,
        swarm_name: str,
        gateways: tuple[str, ...],
        announce_seconds: float,
        survey_seconds: float | None = None,
        own_peers: Callable[[], Collection[str]] = tuple,
        ways: Ways,
        random: Random,
        note: NoteLine,
        failed: Callable[[BaseException], None],
        alarm: NoteLine | None = None,
        book: PeerBook | None = None,
        reserves: bool = False,
        revoking: Revoking | None = None,
        checkpoints: Checkpoints | None = None,
        busy_poll: BusyPoll | None = None,
        credentials: Credentials | None = None,
        arrival: Arrival | None = None,
        blobs: Channels | None = None,
    ) -> None:
        """`credentials` are the rights that users' jobs run by. Without `survey_seconds` workers
        are searched for only when tasks lack them."""
        perform: Mapping[type[Effect], Callable[[Any], None]] = {
            Send: self.send,
            SendAhead: self._send_ahead,
            Dial: self.dial,
            Hangup: self.hang_up,
            Note: self.note,
            Reply: clients.reply,
            JobsAdvanced: clients.advanced,
            Tell: clients.told,
            TaskStreamed: clients.streamed,
            TaskWrote: clients.wrote,
            TaskLeft: clients.left,
            JobsForgotten: clients.forgotten,
            KeepCheckpoint: self._keep_checkpoint,
            ReadCheckpoint: self._read_checkpoint,
            Part: self._part,
            Seek: self._seek,
            Announce: self._announce_soon,
            Check: lambda effect: self._checks.perform(effect),
        }
        self._machine = machine
        self._alarm = alarm or note
        self.runtime = Runtime(
            machine, clock, journal, perform, failed, patient=True, amend=self._amended
        )
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
        self._checks = Checks(self, self._signals, clock, self.runtime.post)
        self._journal = journal
        self._busy_poll = busy_poll
        self._checkpoints: Checkpoints = checkpoints or MemoryCheckpoints()
        self._topic = schedulers_topic(swarm_name)
        self._credentials = credentials
        self._announce_seconds = announce_seconds
        self._own_peers = own_peers
        """Of other roles in this process."""
        self._announcements = 0
        self._announced_at = -ANNOUNCE_SECONDS_MIN
        self._ways = ways
        self.searching = Searching(
            clock,
            random,
            ways.shard_bits,
            lambda sighting: self.post(WorkersSeen([sighting])),
            lambda peer: self.post(WorkerWithdrawn(peer)),
            note,
        )
        self._survey = (
            None
            if survey_seconds is None
            else Survey(
                clock,
                self.searching.search_anybody,
                lambda: machine.figures().workers_known,
                survey_seconds,
            )
        )

    def _amended(self, refused: Sequence[EntryRefused], effects: list[Effect]) -> list[Effect]:
        for one in refused:
            entry = one.entry
            self._alarm(
                "store_fault",
                entry=type(entry).__name__,
                job=getattr(entry, "job", None),
                index=getattr(entry, "index", None),
                error=one.error,
                ended_as_failed=one.instead is not None,
            )
        return self._machine.amended(refused, effects)

    def send(self, effect: Send | SendAhead) -> None:
        """A shape is introduced with its user's token: the worker decides by it."""
        message = effect.message
        if type(message) is Introduce and self._credentials is not None:
            token = self._credentials.for_shape(message.shape)
            self._links.send(effect.peer, msgspec.structs.replace(message, token=token))
        elif type(message) is Close and self._credentials is not None:
            token = self._credentials.bound(message.token)
            self._links.send(effect.peer, msgspec.structs.replace(message, token=token))
        else:
            super().send(effect)

    def _send_ahead(self, effect: SendAhead) -> None:
        self._links.send(effect.peer, effect.message)
        if self._busy_poll is not None and type(effect.message) is Assign:
            self._busy_poll.tasks_sent()

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        was_polled = self._busy_poll is not None and self._busy_poll.answer_arrived()
        super().frames(stream, frames, arrived_at)
        if was_polled and self._busy_poll is not None:
            self._busy_poll.answer_handled(was_polled)

    def _keep_checkpoint(self, effect: KeepCheckpoint) -> None:
        part = effect.part

        def done(taken: Taken) -> None:
            answer = CheckpointTaken(part.attempt, part.version, taken.upto, taken.is_kept)
            self._links.send(effect.peer, answer)

        self._checkpoints.keep(effect.job_id, effect.index, part, done)

    def _read_checkpoint(self, effect: ReadCheckpoint) -> None:
        def done(found: Found) -> None:
            about = (effect.attempt, 0, effect.offset)
            self._links.send(
                effect.peer, CheckpointPart(*about, found.size, found.digest, found.data)
            )

        self._checkpoints.read(effect.job_id, effect.index, effect.offset, done)

    def start(self, swarm: Swarm) -> None:
        """The boot number is raised before the first message; the journal is read."""
        journal = self._journal
        self.post(Restart(journal.raise_boot(), journal.restore(), journal.secret()))
        if self._ways.gossip:
            swarm.subscribe(self._topic)
        if self._ways.dht:
            self.searching.start(swarm)
            if self._survey is not None:
                self._survey.start()
        self._checks.start(swarm)
        self.join(swarm)
        self._announce()

    def reconfigure(self, settings: SchedulerSettings, announce_seconds: float) -> None:
        self._announce_seconds = announce_seconds
        if self._survey is not None:
            self._survey.interval_seconds = settings.discovery_interval
        self.post(Reconfigure(settings))

    def post(self, event: Event) -> None:
        if self._busy_poll is not None:
            self._busy_poll.request_arrived()
        self.runtime.post(event)

    def stop(self) -> None:
        if self._survey is not None:
            self._survey.stop()
        self.searching.stop()
        self._checks.stop()
        self.leave()
        self.runtime.stop()

    def _announce(self) -> None:
        if not self.is_started:
            return
        self._say_where()
        self._clock.call_at(self._clock.now() + self._announce_seconds, self._announce)

    def _seek(self, effect: Seek) -> None:
        """Both ways: we look for workers, and those that nobody told us of hear of us."""
        self.searching.search(effect.shape)
        self._announce_soon(Announce())

    def _announce_soon(self, effect: Announce) -> None:
        if self.is_started and self._clock.now() - self._announced_at >= ANNOUNCE_SECONDS_MIN:
            self._say_where()

    def _say_where(self) -> None:
        if not self._ways.gossip or not self.is_started:
            return
        self._announced_at = self._clock.now()
        me = PeerRecord(self.swarm.peer, (ROLE,), tuple(self.swarm.addresses))
        self._announcements += 1
        sequence = int(self._clock.now() * 1000) + self._announcements
        self.swarm.publish(self._topic, message_codec.encode(Announcement(me, sequence)))

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        super().connected(peer, admission, address, relayed)
        if "worker" in admission.roles and not relayed and address.startswith(LOOPBACK):
            self.post(WorkerIsLocal(peer, peer in self._own_peers()))
        if "gateway" in admission.roles:
            # A gateway is a door to others: what was said before it nobody heard.
            self._say_where()
            for delay in ANNOUNCE_AGAIN_SECONDS:
                self._clock.call_at(self._clock.now() + delay, self._say_where)

    def addresses_changed(self) -> None:
        super().addresses_changed()
        if self.is_started:
            # Whoever heard of us before may have heard of no way that it can go.
            self._say_where()

    def providers_found(self, query: int, peers: list[PeerId], finished: bool) -> None:
        self.searching.providers_found(query, peers, finished)

    def record_found(self, query: int, record: SignedRecord | None) -> None:
        self.searching.record_found(query, record)

    def dial_succeeded(self, address: str, peer: PeerId) -> None:
        wanted = self._dialling.get(address) == peer
        super().dial_succeeded(address, peer)
        self._checks.dial_succeeded(address, peer)
        if wanted and self.is_started and not self._links.is_linked(peer):
            self._signals.summon(self.swarm, peer)

    def dial(self, effect: Dial) -> None:
        self._checks.wanted(effect.peer)
        super().dial(effect)

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        super().dial_failed(address, failure, error, refusal)
        self._checks.dial_failed(address, failure)

    def disconnected(self, peer: PeerId, cause: str) -> None:
        super().disconnected(peer, cause)
        self._checks.disconnected(peer)

    def _part(self, effect: Part) -> None:
        peer = effect.peer
        self._links.send(peer, Dismiss(effect.come_back_seconds, effect.reason))
        link = self._links.get(peer)

        def due() -> None:
            if link is not None and self._links.get(peer) is link:
                self._links.hang_up(peer, "it did not leave when asked")
            if not self._links.is_linked(peer) and self.is_started and peer in self._connected:
                self.swarm.disconnect(peer)

        self._clock.call_at(self._clock.now() + PART_SECONDS, due)

    def round_trip(self, peer: PeerId, seconds: float) -> None:
        self.post(RoundTrip(peer, seconds))

    def knocked(self, peer: PeerId, seconds: float) -> None:
        self._checks.knocked(peer, seconds)
