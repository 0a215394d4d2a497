"""One node of the in-memory swarm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from mycel.core.identifiers import PeerId
from mycel.core.rights import Rights
from mycel.swarm import swarm_limits
from mycel.swarm.errors import InvalidSetting, NodeStopped
from mycel.swarm.interface import (
    DialFailure,
    Liveness,
    PeerFacts,
    SignedRecord,
    StreamProtocol,
    SwarmFigures,
    SwarmListener,
)

if TYPE_CHECKING:
    from mycel.testing.swarm.memory_connection import ConnectionEnd
    from mycel.testing.swarm.memory_swarm import MemoryNetwork


STRIKES_MAX: Final = 10


class MemorySwarm:
    """One node in a `MemoryNetwork`; made by `MemoryNetwork.start`."""

    def __init__(
        self,
        network: MemoryNetwork,
        peer: PeerId,
        listener: SwarmListener,
        protocols: Sequence[StreamProtocol],
        liveness: Liveness,
        rights: Rights,
        clock_offset_seconds: float,
    ) -> None:
        self.network = network
        self.listener = listener
        self.liveness = liveness
        self.rights = rights
        self.revoked: set[bytes] = set()
        self.alive = True
        self.frozen = False
        self.topics: dict[str, None] = {}
        self.ends: dict[PeerId, ConnectionEnd] = {}
        self._provided: set[bytes] = set()
        self._gateways: set[PeerId] = set()
        self._dials: Counter[str] = Counter()
        self._gossip: Counter[str] = Counter()
        self._strikes: Counter[PeerId] = Counter()
        self._peer = peer
        self._protocols = {protocol.name: protocol for protocol in protocols}
        self._clock_offset_seconds = clock_offset_seconds
        self._held: list[Callable[[], None]] = []

    @property
    def peer(self) -> PeerId:
        return self._peer

    @property
    def addresses(self) -> list[str]:
        return [self.network.address_of(self._peer)] if self.alive else []

    def dial(self, address: str) -> None:
        self._check_alive()
        self.network.dial(self, address)

    def dial_peer(self, peer: PeerId, addresses: Sequence[str] = ()) -> None:
        self._check_alive()
        for address in addresses:
            self.network.peer_at(address)
        self.network.dial_peer(self, peer)

    def knock(self, peer: PeerId, addresses: Sequence[str]) -> bool:
        self._check_alive()
        for address in addresses:
            self.network.knock(self, peer, self.network.peer_at(address))
        return bool(addresses)

    def reserve(self, gateway: str) -> None:
        """Everybody reaches everybody here, so it is only remembered while both live."""
        self._check_alive()
        peer = self.network.peer_at(gateway)

        def answer() -> None:
            held = peer in self.ends and "gateway" in self.network.roles_of(peer)
            if held:
                self._gateways.add(peer)
            error = "" if held else "the peer is no gateway, or not connected"
            self.listener.reservation(peer, held, error)

        self.later(answer, self.network.delay())

    def keep(self, peer: PeerId, kept: bool) -> None:
        """Nobody is trimmed here."""
        self._check_alive()

    def open_stream(self, peer: PeerId, protocol: str) -> None:
        self._check_alive()
        if protocol not in self._protocols:
            raise InvalidSetting(f"the node was not started with the protocol {protocol}")
        self.network.open_stream(self, peer, self._protocols[protocol])

    def disconnect(self, peer: PeerId) -> None:
        self._check_alive()
        self.network.break_connection(
            self._peer, peer, cause="the peer disconnected", own_cause="this node disconnected"
        )

    def accuse(self, peer: PeerId) -> None:
        """As in `libp2p`, but that nothing is forgotten with time, and nobody stays out."""
        self._check_alive()
        self._strikes[peer] += 1
        if self._strikes[peer] >= STRIKES_MAX:
            del self._strikes[peer]
            self.disconnect(peer)
            self.later(lambda: self.listener.cut_off(peer, "malformed_frame"))

    def subscribe(self, topic: str) -> None:
        self._check_alive()
        self.topics[topic] = None

    def publish(self, topic: str, data: bytes) -> None:
        self._check_alive()
        swarm_limits.check_gossip(data)
        self._gossip["published"] += 1
        self.network.publish(self, topic, data)

    def provide(self, key: bytes) -> None:
        self._check_alive()
        swarm_limits.check_provided(key, self._provided)
        self._provided.add(key)
        self.network.dht.provide(self._peer, key)

    def stop_providing(self, key: bytes) -> None:
        self._check_alive()
        self._provided.discard(key)
        self.network.dht.stop_providing(self._peer, key)

    def find_providers(self, query: int, key: bytes) -> None:
        self._check_alive()
        swarm_limits.check_key(key)
        self.network.dht.find_providers(self, query, key)

    def put_record(self, payload: bytes, sequence: int, expires_at: float) -> None:
        self._check_alive()
        swarm_limits.check_record(payload, sequence)
        record = SignedRecord(
            peer=self._peer, payload=payload, sequence=sequence, expires_at=expires_at
        )
        self.network.dht.put(record)

    def withdraw_record(self) -> None:
        self._check_alive()
        self.network.dht.withdraw(self._peer)

    def get_record(self, query: int, peer: PeerId) -> None:
        self._check_alive()
        self.network.dht.get(self, query, peer)

    def peers(self) -> list[PeerFacts]:
        return [
            PeerFacts(
                peer=peer,
                roles=end.connection.end_of(peer).node.rights.roles,
                addresses=[self.network.address_of(peer)],
                relayed=False,
                rtt_seconds=end.rtt_seconds,
                connected_at=end.connected_at,
                last_heard_at=end.heard_at,
                software="memory",
            )
            for peer, end in self.ends.items()
        ]

    def figures(self) -> SwarmFigures:
        return SwarmFigures(
            connections={"direct": len(self.ends)},
            dials=dict(self._dials),
            streams=sum(len(end.streams) for end in self.ends.values()),
            gossip_published=self._gossip["published"],
            gossip_received=self._gossip["received"],
        )

    def revoke(self, records: list[bytes]) -> list[bytes]:
        """Here a record is a revocation id and nothing else: there is no owner to sign it."""
        self._check_alive()
        news = [record for record in dict.fromkeys(records) if record not in self.revoked]
        self.revoked.update(news)
        for peer in [peer for peer in self.ends if self._is_revoked(peer)]:
            cause = "the peer's token was revoked"
            self.network.break_connection(
                self._peer, peer, cause="the peer disconnected", own_cause=cause
            )
        return news

    def knows_revoked(self, rights: Rights) -> bool:
        return rights.is_revoked(self.revoked)

    def _is_revoked(self, peer: PeerId) -> bool:
        other = self.network.find(peer)
        return other is not None and self.knows_revoked(other.rights)

    async def stop(self) -> None:
        """Ends every stream in order and frees the address. Idempotent."""
        self.network.stop_node(self)

    # For the network, the connections and the streams.

    def dial_succeeded(self, address: str, peer: PeerId) -> None:
        self._dials["succeeded"] += 1
        self.listener.dial_succeeded(address, peer)

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        self._dials[failure.value] += 1
        self.listener.dial_failed(address, failure, error, refusal)

    def hear_gossip(self, topic: str, source: PeerId, data: bytes) -> None:
        self._gossip["received"] += 1
        self.listener.gossip(topic, source, data)

    def now(self) -> float:
        """This node's own clock."""
        return self.network.clock.now() + self._clock_offset_seconds

    def protocol(self, name: str) -> StreamProtocol | None:
        return self._protocols.get(name)

    def end_gone(self, end: ConnectionEnd) -> None:
        if self.ends.get(end.peer) is end:
            del self.ends[end.peer]
        if end.peer in self._gateways:
            self._gateways.remove(end.peer)
            self.listener.reservation(end.peer, False, "the connection was lost")

    def later(self, callback: Callable[[], None], seconds: float = 0.0) -> None:
        """Runs it on this node when the time has come; a frozen node does so when it thaws,
        a dead one never."""

        def run() -> None:
            if self.frozen:
                self.hold(run)
            elif self.alive:
                callback()

        self.network.clock.call_at(self.network.clock.now() + seconds, run)

    def hold(self, callback: Callable[[], None]) -> None:
        """Something that falls due while the node is frozen."""
        self._held.append(callback)

    def thaw(self) -> None:
        self.frozen = False
        # What has arrived is read before a timer can conclude anything from its absence.
        for end in list(self.ends.values()):
            end.look()
        held, self._held = self._held, []
        for callback in held:
            callback()

    def _check_alive(self) -> None:
        if not self.alive:
            raise NodeStopped("the node has stopped")
