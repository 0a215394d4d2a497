"""Joining: a node finds a gateway, says who it is, and hears who else is there.

    dial a gateway ─▶ control stream ─▶ Join ─▶ Peers ─▶ found(peer records)

It goes on for as long as the node lives: a gateway that is lost is dialled again, and each
new connection to it brings a fresh list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.messages import WIRE_VERSION, Join, PeerRecord, Peers
from mycel.node.clock import Clock
from mycel.swarm.interface import CONTROL_PROTOCOL, Stream, Swarm
from mycel.wire import codec

RETRY_SECONDS_MIN: Final = 0.05
RETRY_SECONDS_MAX: Final = 5.0
RECORDS_MAX: Final = 64
"""So many peers are taken from one list."""


def peer_in(address: str) -> PeerId | None:
    """The peer id that an address ends in."""
    _, found, peer = address.rpartition("/p2p/")
    return PeerId(peer) if found and "/" not in peer else None


class Joining:
    def __init__(
        self,
        clock: Clock,
        roles: tuple[str, ...],
        gateways: tuple[str, ...],
        found: Callable[[PeerRecord], None],
    ) -> None:
        self._clock = clock
        self._roles = roles
        self._gateways = gateways
        self._peers = {peer_in(address) for address in gateways}
        self._found = found
        self._swarm: Swarm | None = None
        self._delays = dict.fromkeys(gateways, RETRY_SECONDS_MIN)

    def start(self, swarm: Swarm) -> None:
        self._swarm = swarm
        for address in self._gateways:
            swarm.dial(address)

    def stop(self) -> None:
        self._swarm = None

    def is_gateway(self, peer: PeerId) -> bool:
        return peer in self._peers

    def connected(self, peer: PeerId, roles: frozenset[str]) -> None:
        if "gateway" in roles and self._swarm is not None:
            self._peers.add(peer)
            self._swarm.open_stream(peer, CONTROL_PROTOCOL)

    def stream_opened(self, stream: Stream) -> None:
        assert self._swarm is not None
        me = PeerRecord(self._swarm.peer, self._roles, tuple(self._swarm.addresses))
        stream.write(codec.encode(Join(WIRE_VERSION, me)))
        for address in self._gateways:
            self._delays[address] = RETRY_SECONDS_MIN

    def frames(self, stream: Stream, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                message = codec.decode_control(frame)
            except codec.MalformedFrame:
                stream.close()
                return
            if isinstance(message, Peers):
                for record in message.peers[:RECORDS_MAX]:
                    self._found(record)

    def disconnected(self, peer: PeerId) -> None:
        for address in self._gateways:
            if peer_in(address) == peer:
                self._dial_later(address)

    def dial_failed(self, address: str) -> None:
        if address in self._delays:
            self._dial_later(address)

    def _dial_later(self, address: str) -> None:
        delay = self._delays[address]
        self._delays[address] = min(2 * delay, RETRY_SECONDS_MAX)
        self._clock.call_at(self._clock.now() + delay, lambda: self._dial(address))

    def _dial(self, address: str) -> None:
        if self._swarm is not None:
            self._swarm.dial(address)
