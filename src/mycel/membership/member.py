"""What a scheduler's and a worker's node have in common: links, joining, dialling.

A member is a `SwarmListener` that turns what the swarm tells into events of its machine, and
the machine's effects into what the swarm is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mycel.blobs.blob_messages import BLOB_PROTOCOL
from mycel.blobs.blob_streams import Channels
from mycel.core.effects import Dial, Hangup, Note, Send, SendAhead
from mycel.core.events import DialFailed
from mycel.core.identifiers import PeerId
from mycel.core.messages import PeerRecord
from mycel.core.principal import Family, Principal
from mycel.discovery.peer_book import PeerBook
from mycel.runtime.clock import Clock
from mycel.runtime.runtime import Runtime
from mycel.swarm.errors import SwarmError
from mycel.swarm.interface import Admission, DialFailure, Stream, Swarm
from mycel.swarm.multiaddress import peer_in
from mycel.swarm.null_listener import IndifferentListener
from mycel.swarm.quic_alternative import quic_twin, without_twins

from .arrival import Arrival
from .joining import Joining, host_in
from .links import Links
from .peer_requests import SERIES_MAX, Measured, Signals
from .protocols import SIGNAL_PROTOCOL
from .revocations import PROTOCOL, Revoking

NoteLine = Callable[..., None]
PARTNERS: Final = {"scheduler": "worker", "worker": "scheduler"}
"""Between whom there are links: what a token does not let a node be, nobody takes it for."""
PATHS_MAX: Final = 32_768
"""Peers of which is remembered how they were reached."""
DIALLED_MAX: Final = 32
"""Of a peer's addresses, which are its own word: else it could send every node of the swarm to
knock at thousands of strangers' doors."""


class Member(IndifferentListener):
    def __init__(
        self,
        clock: Clock,
        roles: tuple[str, ...],
        gateways: tuple[str, ...],
        note: NoteLine,
        runtime: Runtime,
        revoking: Revoking,
        book: PeerBook | None = None,
        *,
        reserves: bool = False,
        arrival: Arrival | None = None,
        blobs: Channels | None = None,
    ) -> None:
        """Without `blobs` the node closes blob streams."""
        post = runtime.post
        self._turn_now = runtime.turn_now
        self._clock = clock
        self._note = note
        self._post = post
        self._partner = next(PARTNERS[role] for role in roles)
        self._links = Links(
            clock, post, self.heard_by, self._keep_peer, self._accuse, self.principal_of
        )
        self._signals = Signals(clock, self.summoned, self._accuse)
        self._revoking = revoking
        self._joining = Joining(clock, roles, gateways, self.peer_found, book, reserves=reserves)
        self._arrival = arrival
        self._blobs = blobs
        self._swarm: Swarm | None = None
        self._connected: dict[PeerId, Admission] = {}
        self._not_partners: set[PeerId] = set()
        """Connected ones that wanted a link."""
        self._dialling: dict[str, PeerId] = {}
        self._twins: dict[str, str] = {}
        """QUIC beside the TCP address that is being dialled."""
        self._hung_up: set[str] = set()
        """Being dialled again: somebody took the first call and said nothing."""
        self._dial_once_gone: dict[PeerId, Dial] = {}
        self._to_ping: dict[PeerId, list[tuple[int, float, Measured]]] = {}
        """Being dialled first."""
        self._refused: set[PeerId] = set()
        """Being dialled, and refused at one of its addresses."""
        self._hosts: dict[PeerId, str] = {}
        """At which IP address a peer was last connected; empty if through a relay."""

    @property
    def swarm(self) -> Swarm:
        assert self._swarm is not None, "the node has not started"
        return self._swarm

    @property
    def is_started(self) -> bool:
        return self._swarm is not None

    def is_connected(self, peer: PeerId) -> bool:
        return peer in self._connected

    def principal_of(self, peer: PeerId) -> Principal:
        admission = self._connected.get(peer)
        return Principal(user="") if admission is None else admission.principal

    def family_of(self, peer: PeerId) -> Family | None:
        return self.principal_of(peer).family

    def is_linked(self, peer: PeerId) -> bool:
        return self._links.is_linked(peer)

    def join(self, swarm: Swarm) -> None:
        self._swarm = swarm
        if self._blobs is not None:
            self._blobs.start(swarm, self._connected.__contains__, self.family_of)
        self._revoking.start(swarm)
        self._joining.start(swarm)

    def leave(self) -> None:
        """Before the swarm stops: nothing is dialled or opened any more."""
        self._joining.stop()
        self._revoking.stop()
        self._swarm = None

    def peer_found(self, record: PeerRecord) -> None:
        """Somebody says that this peer exists; a hint, no more."""

    def _keep_peer(self, peer: PeerId, kept: bool) -> None:
        """A peer with a link is used: it is not hung up because there are too many."""
        if self._swarm is not None:
            self._swarm.keep(peer, kept)

    def _accuse(self, peer: PeerId, error: str) -> None:
        """A frame of that peer was no message; ten of them, and it is cut off."""
        self._note("malformed_frame", peer=peer, error=error)
        if self._swarm is not None:
            self._swarm.accuse(peer)

    def heard_by(self, peer: PeerId) -> str:
        """How this node came to know that peer."""
        return ""

    @property
    def gateways(self) -> list[PeerId]:
        return self._joining.gateways

    @property
    def reservations(self) -> list[PeerId]:
        return self._joining.reservations

    def ping(self, peer: PeerId, count: int, timeout_seconds: float, measured: Measured) -> None:
        """Connects first, if it has to; `measured` is called once."""
        if self._swarm is None:
            measured([], "this node is stopping")
        elif peer in self._connected:
            self._signals.ping(self._swarm, peer, count, timeout_seconds, measured)
        elif peer == self._swarm.peer:
            measured([], "this is the scheduler's own node")
        else:
            self._dial_to_ping(self._swarm, peer, (count, timeout_seconds, measured))

    def _dial_to_ping(
        self, swarm: Swarm, peer: PeerId, wanted: tuple[int, float, Measured]
    ) -> None:
        waiting = self._to_ping.setdefault(peer, [])
        if len(waiting) >= SERIES_MAX:
            wanted[2]([], "it is being pinged already")
            return
        waiting.append(wanted)
        swarm.dial_peer(peer)

    def _dialled_to_ping(self, address: str, error: str) -> None:
        peer = peer_in(address)
        if peer is None:
            return
        for count, timeout_seconds, measured in self._to_ping.pop(peer, ()):
            if error:
                measured([], error)
            else:
                self.ping(peer, count, timeout_seconds, measured)

    def summoned(self, peer: PeerId) -> None:
        """That peer wants a link with this node."""

    # Effects that every machine has

    def send(self, effect: Send | SendAhead) -> None:
        self._links.send(effect.peer, effect.message)

    def dial(self, effect: Dial) -> None:
        if effect.peer in self._connected:
            # Its streams are gone and the connection is not, or not yet: either the worker
            # opens a new link when it is summoned, or we hear of the end of the connection.
            self._dial_once_gone[effect.peer] = effect
            if self._swarm is not None:
                self._signals.summon(self._swarm, effect.peer)
            return
        if not effect.addresses or self._swarm is None:
            self._post(DialFailed(effect.peer, refused=False))
            return
        if not self.dial_all(effect.peer, effect.addresses):
            self._post(DialFailed(effect.peer, refused=False))

    def dial_all(self, peer: PeerId, addresses: tuple[str, ...]) -> bool:
        """False if none of them can be dialled at all: they are what others say, and others
        lie. QUIC waits until TCP has failed at the same place."""
        addresses = addresses[:DIALLED_MAX]
        first = without_twins(addresses)
        for address in first:
            self._dial(peer, address)
            quic = quic_twin(address)
            if quic in addresses:
                self._twins[address] = quic
        return any(self._dialling.get(address) == peer for address in first)

    def _dial(self, peer: PeerId, address: str) -> None:
        assert self._swarm is not None
        if address in self._dialling:
            return
        try:
            self._swarm.dial(address)
        except SwarmError as error:
            self._note("cannot_dial", address=address, error=str(error))
        else:
            self._dialling[address] = peer

    def _dialled(self, address: str, failure: DialFailure | None) -> PeerId | None:
        """Whom it was to reach. Where TCP found nothing, neither a listener nor that there is
        none, QUIC may. A process that is killed may take a call and break it off with its last
        breath: the next one tells."""
        peer = self._dialling.pop(address, None)
        quic = self._twins.pop(address, None)
        again = address not in self._hung_up
        self._hung_up.discard(address)
        if peer is None or self._swarm is None or failure in (None, DialFailure.REFUSED):
            return peer
        if failure is DialFailure.OTHER and again and self._is_telling(peer, address):
            self._hung_up.add(address)
            self._dial(peer, address)
            if quic is not None:
                self._twins[address] = quic
        elif quic is not None:
            self._dial(peer, quic)
        return peer

    def hang_up(self, effect: Hangup) -> None:
        self._links.hang_up(effect.peer, effect.reason)
        if self._swarm is None:
            return
        if effect.is_offence:
            self._swarm.accuse(effect.peer)
        if effect.peer in self._connected:
            self._swarm.disconnect(effect.peer)

    def note(self, effect: Note) -> None:
        self._note(effect.event, **effect.fields)

    # What the swarm tells

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        self._connected[peer] = admission
        self._took_path(peer, address, relayed)
        self._joining.connected(peer, admission.roles, address, relayed)
        self._revoking.connected(peer, admission)
        self._dialled_to_ping(f"/p2p/{peer}", "")  # it may have been quicker to call us
        if self._arrival is not None and "gateway" in admission.roles:
            self._arrival.arrived()

    def path_changed(self, peer: PeerId, address: str, relayed: bool) -> None:
        self._took_path(peer, address, relayed)
        self._note("path_changed", peer=peer, address=address, relayed=relayed)

    def _took_path(self, peer: PeerId, address: str, relayed: bool) -> None:
        self._hosts.pop(peer, None)
        while len(self._hosts) >= PATHS_MAX:
            del self._hosts[next(iter(self._hosts))]
        self._hosts[peer] = "" if relayed else host_in(address)

    def where_met(self, peer: PeerId, addresses: tuple[str, ...]) -> list[str]:
        """Those of its addresses that are where it was last met directly: at others somebody
        else may answer (see `_is_telling`)."""
        host = self._hosts.get(peer)
        if not host:
            return []
        direct = (address for address in addresses if "/p2p-circuit" not in address)
        return [address for address in direct if host_in(address) == host]

    def addresses_changed(self) -> None:
        self._joining.addresses_changed()

    def reservation(self, gateway: PeerId, held: bool, error: str) -> None:
        self._note("reservation", gateway=gateway, held=held, error=error)
        self._joining.reservation(gateway, held)

    def disconnected(self, peer: PeerId, cause: str) -> None:
        self._connected.pop(peer, None)
        self._revoking.disconnected(peer)
        self._not_partners.discard(peer)
        self._links.hang_up(peer, cause)
        self._signals.peer_lost(peer, cause)
        self._joining.disconnected(peer)
        waiting = self._dial_once_gone.pop(peer, None)
        if waiting is not None:
            self.dial(waiting)

    def dial_succeeded(self, address: str, peer: PeerId) -> None:
        self._dialled(address, None)
        self._refused.discard(peer)
        self._dialled_to_ping(f"/p2p/{peer}", "")
        if self._blobs is not None:
            self._blobs.dialled(peer, "")

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        if self._arrival is not None:
            self._arrival.dial_failed(address, failure, error, refusal)
        peer = self._dialled(address, failure)
        self._joining.dial_failed(address, failure)
        self._note("dial_failed", address=address, failure=failure.value, error=error)
        if address.startswith("/p2p/"):
            self._dialled_to_ping(address, error)
            self._blobs_unreachable(address, error)
        if peer is None:
            return
        if failure is DialFailure.REFUSED and self._is_telling(peer, address):
            self._refused.add(peer)
        if peer not in self._dialling.values() and peer not in self._connected:
            refused = peer in self._refused
            self._refused.discard(peer)
            self._post(DialFailed(peer, refused=refused))

    def _blobs_unreachable(self, address: str, error: str) -> None:
        peer = peer_in(address)
        if self._blobs is not None and peer is not None:
            self._blobs.dialled(peer, error)

    def _is_telling(self, peer: PeerId, address: str) -> bool:
        """A refusal tells of the peer's death only where the peer itself would have answered.
        One behind a router, or on another machine, names addresses that here may be
        somebody else's: those of its LAN, and 127.0.0.1."""
        if "/p2p-circuit" in address:
            return False
        known = self._hosts.get(peer)
        return known is None or known == host_in(address)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        if stream.protocol == SIGNAL_PROTOCOL:
            self._signals.stream_opened(stream, ours)
        elif stream.protocol == PROTOCOL:
            self._revoking.stream_opened(stream, ours)
        elif stream.protocol == BLOB_PROTOCOL:
            if self._blobs is None:
                stream.close()
            else:
                self._blobs.stream_opened(stream, ours)
        elif ours and self._joining.is_gateway(stream.peer):
            if self._swarm is not None:
                self._joining.stream_opened(stream)
        elif self.is_partner(stream.peer):
            self._dial_once_gone.pop(stream.peer, None)
            self._links.stream_opened(stream)
        else:
            self._refuse_link(stream)

    def _refuse_link(self, stream: Stream) -> None:
        """Told once for each connection: it may try again and again."""
        stream.close()
        if stream.peer not in self._not_partners:
            self._not_partners.add(stream.peer)
            roles = sorted(self.roles_of(stream.peer))
            self._note("link_refused", peer=stream.peer, roles=roles, wanted=self._partner)

    def is_partner(self, peer: PeerId) -> bool:
        """Whether its token lets it have a link with this node."""
        return self._partner in self.roles_of(peer)

    def roles_of(self, peer: PeerId) -> frozenset[str]:
        admission = self._connected.get(peer)
        return frozenset() if admission is None else admission.roles

    def revocation_ids_of(self, peer: PeerId) -> list[str]:
        """Of the blocks of its token, as hex: the first ends the invite that it joined by, the
        last its own token alone. Empty if it is not connected."""
        admission = self._connected.get(peer)
        ids = () if admission is None else admission.rights.revocation_ids
        return [one.hex() for one in ids]

    def stream_failed(self, peer: PeerId, protocol: str, error: str) -> None:
        self._note("stream_failed", peer=peer, protocol=protocol, error=error)
        if protocol == SIGNAL_PROTOCOL:
            self._signals.stream_failed(peer, error)
        elif protocol == PROTOCOL:
            pass  # revocations are exchanged again with the next connection
        elif protocol == BLOB_PROTOCOL:
            if self._blobs is not None:
                self._blobs.stream_failed(peer, error)
        elif self._joining.is_gateway(peer):
            self._joining.stream_failed(peer)
        else:
            self._links.stream_failed(peer, error)

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        if stream.protocol == SIGNAL_PROTOCOL:
            self._signals.frames(stream, frames, arrived_at)
        elif stream.protocol == PROTOCOL:
            self._revoking.frames(stream, frames)
        elif stream.protocol == BLOB_PROTOCOL:
            if self._blobs is not None:
                self._blobs.frames(stream, frames)
        elif self._joining.is_gateway(stream.peer):
            self._joining.frames(stream, frames)
        else:
            self._links.frames(stream, frames, arrived_at)
            self._turn_now()

    def heartbeat(self, stream: Stream, peer_clock: float, arrived_at: float) -> None:
        self._links.heartbeat(stream, peer_clock, arrived_at)

    def silent(self, stream: Stream, seconds: float) -> None:
        self._links.silent(stream, seconds)

    def writable(self, stream: Stream) -> None:
        if self._blobs is not None and stream.protocol == BLOB_PROTOCOL:
            self._blobs.writable(stream)

    def stream_closed(self, stream: Stream, error: str) -> None:
        if stream.protocol == SIGNAL_PROTOCOL:
            self._signals.stream_closed(stream, error)
        elif stream.protocol == PROTOCOL:
            self._revoking.stream_closed(stream)
        elif stream.protocol == BLOB_PROTOCOL:
            if self._blobs is not None:
                self._blobs.stream_closed(stream, error)
        elif self._joining.is_gateway(stream.peer):
            self._joining.stream_closed(stream)
        else:
            self._links.stream_closed(stream, error)

    def gossip(self, topic: str, source: PeerId, data: bytes) -> None:
        if topic == self._revoking.topic:
            self._revoking.gossip(source, data)
        else:
            self.heard(topic, source, data)

    def heard(self, topic: str, source: PeerId, data: bytes) -> None:
        """Gossip of the role's own topics."""

    def cut_off(self, peer: PeerId, reason: str) -> None:
        self._note("peer_cut_off", peer=peer, reason=reason)

    def refused(self, address: str, error: str) -> None:
        self._note("hello_refused", address=address, error=error)
