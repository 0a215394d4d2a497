"""The gateway: hands newcomers a sample of peers with their roles, and knows other gateways.

It keeps what peers say of themselves while they are connected, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.messages import Join, PeerRecord, Peers
from mycel.discovery.peer_book import PeerBook
from mycel.membership.arrival import Arrival
from mycel.membership.gateway_services import BUILT_IN, GatewayService
from mycel.membership.joining import RECORDS_MAX, Joining
from mycel.membership.peer_list import ADDRESSES_MAX, JoinedPeers
from mycel.membership.peer_requests import Signals
from mycel.membership.protocols import SIGNAL_PROTOCOL, schedulers_topic
from mycel.membership.revocations import PROTOCOL, Revoking
from mycel.runtime.clock import Clock
from mycel.swarm import message_codec
from mycel.swarm.interface import CONTROL_PROTOCOL, Admission, DialFailure, Stream, Swarm
from mycel.swarm.null_listener import IndifferentListener

ROLE: Final = "gateway"


class GatewayNode(IndifferentListener):
    """A `SwarmListener`."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        swarm_name: str,
        note: Callable[..., None],
        *,
        gateways: tuple[str, ...] = (),
        names: Sequence[str] = tuple(BUILT_IN),
        services: Sequence[GatewayService] = (),
        book: PeerBook | None = None,
        revoking: Revoking | None = None,
        arrival: Arrival | None = None,
    ) -> None:
        """`arrival` is of a gateway that joins others."""
        self._revoking = revoking or Revoking(swarm_name, note)
        self._topic = schedulers_topic(swarm_name)
        self._note = note
        self._names = frozenset(names)
        self._services = tuple(services)
        self._joining = Joining(clock, (ROLE,), gateways, self._heard_of, book)
        self._signals = Signals(clock, self._summoned, self._accuse)
        self._arrival = arrival
        self._asking: set[Stream] = set()
        """Our own streams to other gateways."""
        self._connected: dict[PeerId, Admission] = {}
        self._joined_peers = JoinedPeers(random)
        self._swarm: Swarm | None = None

    @property
    def records(self) -> list[PeerRecord]:
        return self._joined_peers.records

    def start(self, swarm: Swarm) -> None:
        """Gossip is passed on only by those who listen to it themselves."""
        self._swarm = swarm
        swarm.subscribe(self._topic)
        self._revoking.start(swarm)
        self._joining.start(swarm)
        for service in self._services:
            service.start(swarm, self._note)

    def stop(self) -> None:
        for service in self._services:
            service.stop()
        self._joining.stop()
        self._revoking.stop()

    def _heard_of(self, record: PeerRecord) -> None:
        """Another gateway says so; whoever it is comes by itself, or is found in the DHT."""

    def _accuse(self, peer: PeerId, error: str) -> None:
        self._note("malformed_frame", peer=peer, error=error)
        if self._swarm is not None:
            self._swarm.accuse(peer)

    def _summoned(self, peer: PeerId) -> None:
        """A gateway has no links."""

    # What the swarm tells

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        self._connected[peer] = admission
        self._joining.connected(peer, admission.roles, address, relayed)
        self._revoking.connected(peer, admission)
        if self._arrival is not None and ROLE in admission.roles:
            self._arrival.arrived()
        for service in self._services:
            service.peer_connected(peer, admission.roles)

    def disconnected(self, peer: PeerId, cause: str) -> None:
        self._connected.pop(peer, None)
        self._revoking.disconnected(peer)
        self._signals.peer_lost(peer, cause)
        self._joining.disconnected(peer)
        for service in self._services:
            service.peer_left(peer)
        if self._joined_peers.leave(peer):
            self._note("peer_left", peer=peer, cause=cause)

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        if self._arrival is not None:
            self._arrival.dial_failed(address, failure, error, refusal)
        self._joining.dial_failed(address, failure)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        if stream.protocol == SIGNAL_PROTOCOL:
            self._signals.stream_opened(stream, ours)
        elif stream.protocol == PROTOCOL:
            self._revoking.stream_opened(stream, ours)
        elif stream.protocol != CONTROL_PROTOCOL:
            stream.close()  # what is sent on others is not counted
        elif ours:
            self._asking.add(stream)
            self._joining.stream_opened(stream)

    def stream_failed(self, peer: PeerId, protocol: str, error: str) -> None:
        if protocol == SIGNAL_PROTOCOL:
            self._signals.stream_failed(peer, error)
        elif protocol == CONTROL_PROTOCOL:
            self._joining.stream_failed(peer)

    def stream_closed(self, stream: Stream, error: str) -> None:
        if stream.protocol == SIGNAL_PROTOCOL:
            self._signals.stream_closed(stream, error)
        elif stream.protocol == PROTOCOL:
            self._revoking.stream_closed(stream)
        elif stream in self._asking:
            self._asking.remove(stream)
            self._joining.stream_closed(stream)

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        if stream.protocol == SIGNAL_PROTOCOL:
            self._signals.frames(stream, frames, arrived_at)
        elif stream.protocol == PROTOCOL:
            self._revoking.frames(stream, frames)
        elif stream in self._asking:
            self._joining.frames(stream, frames)
        elif stream.protocol == CONTROL_PROTOCOL:
            self._answer(stream, frames)

    def _answer(self, stream: Stream, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                message = message_codec.decode_control(frame)
            except message_codec.MalformedFrame as error:
                self._accuse(stream.peer, str(error))
                stream.close()
                continue
            if isinstance(message, Join):
                self._joined(stream, message.me)

    def _joined(self, stream: Stream, me: PeerRecord) -> None:
        admission = self._connected.get(stream.peer, Admission())
        roles = admission.roles
        if self._joined_peers.enter(stream.peer, roles, me.addresses, admission.family):
            self._note("peer_joined", peer=stream.peer, roles=sorted(roles))
        sample = self._sample(stream.peer) if "bootstrap" in self._names else []
        stream.write(message_codec.encode(Peers(sample)))

    def _sample(self, asker: PeerId) -> list[PeerRecord]:
        """Itself first: whom a gateway has dialled does not know where it listens, and wants to
        when it looks for its swarm again."""
        assert self._swarm is not None, "a gateway that has not started has no streams"
        me = PeerRecord(self._swarm.peer, (ROLE,), tuple(self._swarm.addresses[:ADDRESSES_MAX]))
        return [me, *self._joined_peers.sample(RECORDS_MAX - 1, besides=asker)]

    def gossip(self, topic: str, source: PeerId, data: bytes) -> None:
        if topic == self._revoking.topic:
            self._revoking.gossip(source, data)

    def cut_off(self, peer: PeerId, reason: str) -> None:
        self._note("peer_cut_off", peer=peer, reason=reason)

    def refused(self, address: str, error: str) -> None:
        self._note("hello_refused", address=address, error=error)
