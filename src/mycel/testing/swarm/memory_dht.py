"""The DHT of the in-memory swarm: one table, seen as far as connections reach.

It is as forgetful as the real one: what a dead node has published is found until its life
time ends, and some of what is there is not found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mycel.core.identifiers import PeerId
from mycel.swarm.interface import SignedRecord

if TYPE_CHECKING:
    from mycel.testing.swarm.memory_node import MemorySwarm
    from mycel.testing.swarm.memory_swarm import MemoryNetwork

RECORD_TTL_SECONDS: Final = 600.0
"""For how long what nobody publishes any more is still found."""
FOR_EVER: Final = float("inf")


class MemoryDht:
    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._providers: dict[bytes, dict[PeerId, float]] = {}
        self._records: dict[PeerId, tuple[SignedRecord, float]] = {}
        """Each with the time until which it is found."""

    def provide(self, peer: PeerId, key: bytes) -> None:
        self._providers.setdefault(key, {})[peer] = FOR_EVER

    def stop_providing(self, peer: PeerId, key: bytes) -> None:
        providers = self._providers.get(key, {})
        if providers.get(peer) == FOR_EVER:
            providers[peer] = self._network.clock.now() + RECORD_TTL_SECONDS

    def put(self, record: SignedRecord) -> None:
        known = self._records.get(record.peer)
        if known is None or known[0].sequence <= record.sequence:
            self._records[record.peer] = (record, FOR_EVER)

    def withdraw(self, peer: PeerId) -> None:
        known = self._records.get(peer)
        if known is not None and known[0].payload:
            record = known[0]
            empty = SignedRecord(
                peer=peer,
                payload=b"",
                sequence=record.sequence + 1,
                expires_at=record.expires_at,
            )
            self._records[peer] = (empty, FOR_EVER)

    def node_ended(self, peer: PeerId) -> None:
        """Nobody publishes for it any more."""
        until = self._network.clock.now() + RECORD_TTL_SECONDS
        for providers in self._providers.values():
            if providers.get(peer) == FOR_EVER:
                providers[peer] = until
        if peer in self._records:
            self._records[peer] = (self._records[peer][0], until)

    def find_providers(self, node: MemorySwarm, query: int, key: bytes) -> None:
        def answer() -> None:
            found = [peer for peer in self._live_providers(key) if self._is_found(node, peer)]
            if found:
                node.listener.providers_found(query, found, False)
            node.later(
                lambda: node.listener.providers_found(query, [], True), self._network.delay()
            )

        node.later(answer, self._network.delay() + self._network.delay())

    def get(self, node: MemorySwarm, query: int, peer: PeerId) -> None:
        def answer() -> None:
            record, until = self._records.get(peer, (None, 0.0))
            now = self._network.clock.now()
            if record is not None and (min(until, record.expires_at) <= now):
                del self._records[peer]
                record = None
            if not self._is_found(node, peer):
                record = None
            node.listener.record_found(query, record)

        node.later(answer, self._network.delay() + self._network.delay())

    def _live_providers(self, key: bytes) -> list[PeerId]:
        now = self._network.clock.now()
        providers = self._providers.get(key, {})
        for peer in [peer for peer, until in providers.items() if until <= now]:
            del providers[peer]
        return list(providers)

    def _is_found(self, node: MemorySwarm, peer: PeerId) -> bool:
        """A node finds what it has published itself, and the rest if it is not alone."""
        if peer == node.peer:
            return True
        return bool(node.ends) and not self._network.happens(self._network.faults.dht_loss)
