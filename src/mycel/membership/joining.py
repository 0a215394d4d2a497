"""Joining: a node finds gateways, says who it is, hears who else is there, and stays reachable.

    dial gateways ─▶ control stream ─▶ Join ─▶ Peers ─▶ found(peer records)
         ▲                 │                     │
      peer book            └─▶ reservations      └─▶ more gateways, peer book

It goes on for as long as the node lives. Gateways that are configured are always tried again;
those that others named are used while fewer than `GATEWAYS_WANTED` are connected. A node that
no gateway answers dials peers that it has met before: any of them is a door to the swarm.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, runtime_checkable

from mycel.access.errors import AccessError
from mycel.core.identifiers import PeerId
from mycel.core.messages import WIRE_VERSION, Join, PeerRecord, Peers
from mycel.discovery.peer_book import PeerBook
from mycel.runtime.clock import Clock
from mycel.swarm import message_codec
from mycel.swarm.errors import SwarmError
from mycel.swarm.interface import CONTROL_PROTOCOL, DialFailure, Stream, Swarm
from mycel.swarm.multiaddress import peer_in
from mycel.swarm.quic_alternative import quic_twin, without_twins

RETRY_SECONDS_MIN: Final = 0.05
RETRY_SECONDS_MAX: Final = 5.0
RECORDS_MAX: Final = 64
"""So many peers are taken from one list."""
ASK_AGAIN_SECONDS: Final = 1.0
"""After this long a gateway that took no stream, or ended it, is asked for another."""
GATEWAYS_WANTED: Final = 2
"""Connected ones, and reservations."""
GATEWAYS_MAX: Final = 32
"""Known ones."""
LOOK_SECONDS: Final = 10.0
"""How often a node asks itself whether it is alone, and saves whom it has met."""
SAVE_SECONDS: Final = 1.0
"""…for the first time so soon: it may be killed, and its gateway too."""
ASK_FOR_MORE_SECONDS: Final = 60.0
"""How often a node with too few gateways asks those that it has for others, which may have come
since."""
STORED_DIALLED: Final = 8
"""Stored peers that a lonely node dials at a time."""
NOBODY_MET: Final = (DialFailure.SILENT, DialFailure.OTHER)
"""Neither a gateway, nor that there is none."""


def host_in(address: str) -> str:
    """The IP address or name that an address begins with; all of this machine's own are one."""
    _, _, rest = address.partition("/")
    _, _, rest = rest.partition("/")
    host = rest.partition("/")[0]
    return "localhost" if host == "::1" or host.startswith("127.") else host


@runtime_checkable
class Relaying(Protocol):
    """A swarm in which a node can be reached through others."""

    def reserve(self, gateway: str) -> None: ...


class Joining:
    def __init__(
        self,
        clock: Clock,
        roles: tuple[str, ...],
        gateways: tuple[str, ...],
        found: Callable[[PeerRecord], None],
        book: PeerBook | None = None,
        *,
        reserves: bool = False,
    ) -> None:
        self._clock = clock
        self._roles = roles
        self._configured = gateways
        self._learned: dict[PeerId, tuple[str, ...]] = {}
        self._peers = {peer_in(address) for address in gateways}
        self._found = found
        self._book = book if book is not None else PeerBook()
        self._reserves = reserves
        self._swarm: Swarm | None = None
        self._delays = dict.fromkeys(gateways, RETRY_SECONDS_MIN)
        self._to_dial: set[str] = set()
        """Configured gateways that will be dialled again: one at a time for each, since they are
        dialled for other reasons too."""
        self._connected: dict[PeerId, str] = {}
        """Gateways, and where they were reached."""
        self._opening: set[PeerId] = set()
        self._streams: dict[PeerId, Stream] = {}
        """On which gateways hear where this node is."""
        self._reserved: set[PeerId] = set()
        self._reserving: set[PeerId] = set()
        self._declined: set[PeerId] = set()
        """Gateways that gave no reservation; they are asked again at the next look around."""
        self._stored_tried = 0
        self._ask_at = clock.now() + ASK_FOR_MORE_SECONDS

    def start(self, swarm: Swarm) -> None:
        self._swarm = swarm
        for address in self._configured:
            self._dial(address)
        for record in self._book.records():
            if "gateway" in record.roles:
                self._learn(record)
        self._clock.call_at(self._clock.now() + SAVE_SECONDS, self._save)
        self._clock.call_at(self._clock.now() + LOOK_SECONDS, self._look)

    def stop(self) -> None:
        self._swarm = None
        self._save()

    @property
    def gateways(self) -> list[PeerId]:
        return list(self._connected)

    @property
    def reservations(self) -> list[PeerId]:
        """Gateways through which others can reach this node."""
        return sorted(self._reserved)

    def is_gateway(self, peer: PeerId) -> bool:
        return peer in self._peers

    # What the swarm tells

    def connected(self, peer: PeerId, roles: frozenset[str], address: str, relayed: bool) -> None:
        if self._swarm is None:
            return
        if "gateway" in roles:
            self._peers.add(peer)
            self._connected[peer] = address
            self._swarm.keep(peer, True)
            self._say_where(peer)
            self._reserve()

    def stream_opened(self, stream: Stream) -> None:
        self._opening.discard(stream.peer)
        self._streams[stream.peer] = stream
        self._say_where(stream.peer)
        for address in self._delays:
            self._delays[address] = RETRY_SECONDS_MIN

    def stream_failed(self, peer: PeerId) -> None:
        self._opening.discard(peer)
        self._clock.call_at(
            self._clock.now() + ASK_AGAIN_SECONDS,
            lambda: None if peer in self._streams else self._say_where(peer),
        )

    def stream_closed(self, stream: Stream) -> None:
        if self._streams.get(stream.peer) is stream:
            del self._streams[stream.peer]
            self.stream_failed(stream.peer)

    def frames(self, stream: Stream, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                message = message_codec.decode_control(frame)
            except message_codec.MalformedFrame:
                if self._swarm is not None:
                    self._swarm.accuse(stream.peer)
                stream.close()
                continue
            if isinstance(message, Peers):
                for record in message.peers[:RECORDS_MAX]:
                    self._heard_of(record)

    def _heard_of(self, record: PeerRecord) -> None:
        if self._swarm is None or record.peer == self._swarm.peer:
            return
        self._book.remember(record, self._clock.unix())
        if "gateway" in record.roles:
            self._learn(record)
        self._found(record)

    def disconnected(self, peer: PeerId) -> None:
        self._connected.pop(peer, None)
        self._opening.discard(peer)
        self._streams.pop(peer, None)
        self._reserving.discard(peer)
        self._reserved.discard(peer)
        self._declined.discard(peer)
        for address in self._configured:
            if peer_in(address) == peer:
                self._dial_later(address)
        if peer in self._peers:
            self._use_learned()
            self._reserve()

    def dial_failed(self, address: str, failure: DialFailure) -> None:
        if address in self._delays:
            self._dial_later(address)
        quic = quic_twin(address)
        if quic is not None and failure in NOBODY_MET and self._is_of_gateway(address):
            # Of most gateways only the TCP address is known, and it may be filtered.
            self._dial(quic)

    def _is_of_gateway(self, address: str) -> bool:
        return address in self._delays or any(address in ways for ways in self._learned.values())

    def addresses_changed(self) -> None:
        """There is another way to this node: gateways hand that on."""
        for peer in self._connected:
            self._say_where(peer)

    def reservation(self, gateway: PeerId, held: bool) -> None:
        self._reserving.discard(gateway)
        if held:
            self._reserved.add(gateway)
        else:
            self._reserved.discard(gateway)
            self._declined.add(gateway)
            self._reserve()

    # Gateways

    def _learn(self, record: PeerRecord) -> None:
        peer = PeerId(record.peer)
        if peer in self._learned or len(self._learned) < GATEWAYS_MAX:
            self._learned[peer] = tuple(without_twins(record.addresses))
            self._peers.add(peer)
            self._use_learned()

    def _use_learned(self) -> None:
        """As many as are wanted; those that do not answer are tried again by and by."""
        missing = GATEWAYS_WANTED - len(self._connected)
        for peer, addresses in self._learned.items():
            if missing <= 0:
                return
            if peer not in self._connected:
                missing -= 1
                for address in addresses:
                    self._dial(address)

    def _dial_later(self, address: str) -> None:
        if address in self._to_dial or address not in self._delays:
            return
        self._to_dial.add(address)
        delay = self._delays[address]
        self._delays[address] = min(2 * delay, RETRY_SECONDS_MAX)
        self._clock.call_at(self._clock.now() + delay, lambda: self._dial_again(address))

    def _dial_again(self, address: str) -> None:
        self._to_dial.discard(address)
        self._dial(address)

    def _dial(self, address: str) -> None:
        if self._swarm is None or peer_in(address) in (self._swarm.peer, *self._connected):
            return  # gateways may all have one list, with themselves in it
        try:
            self._swarm.dial(address)
        except SwarmError:
            self._delays.pop(address, None)  # it is no address of this network

    # Reservations

    def _reserve(self) -> None:
        if self._swarm is None or not self._reserves:
            return
        if not isinstance(self._swarm, Relaying):
            return
        for peer, address in self._connected.items():
            if len(self._reserved | self._reserving) >= GATEWAYS_WANTED:
                return
            if peer not in self._reserved | self._reserving | self._declined:
                self._reserving.add(peer)
                self._swarm.reserve(self._address_of(peer) or f"{address}/p2p/{peer}")

    def _address_of(self, gateway: PeerId) -> str:
        """Where it says that it listens; a connection may have come from anywhere."""
        known = (*self._configured, *self._learned.get(gateway, ()))
        return next((address for address in known if peer_in(address) == gateway), "")

    # Saying where this node is

    def _say_where(self, gateway: PeerId) -> None:
        if self._swarm is None or gateway not in self._connected or gateway in self._opening:
            return
        stream = self._streams.get(gateway)
        if stream is None:
            self._opening.add(gateway)
            self._swarm.open_stream(gateway, CONTROL_PROTOCOL)
        else:
            me = PeerRecord(self._swarm.peer, self._roles, tuple(self._swarm.addresses))
            stream.write(message_codec.encode(Join(WIRE_VERSION, me)))

    # Being alone

    def _look(self) -> None:
        if self._swarm is None:
            return
        self._use_learned()
        self._declined.clear()
        self._reserve()
        if not self._connected:
            self._dial_stored()
        elif len(self._connected) < GATEWAYS_WANTED and self._clock.now() >= self._ask_at:
            self._ask_at = self._clock.now() + ASK_FOR_MORE_SECONDS
            for gateway in self._connected:
                self._say_where(gateway)
        self._save()
        self._clock.call_at(self._clock.now() + LOOK_SECONDS, self._look)

    def _dial_stored(self) -> None:
        """A few others each time, from the most useful on."""
        records = self._book.records()
        begin = self._stored_tried % max(1, len(records))
        self._stored_tried += STORED_DIALLED
        for record in records[begin : begin + STORED_DIALLED]:
            for address in without_twins(record.addresses):
                self._dial(address)

    def _save(self) -> None:
        with suppress(AccessError):  # a full disk ends nothing here; next time
            self._book.save()
