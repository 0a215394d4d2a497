"""The swarm in memory and in virtual time: the same promises, with faults on demand.

A `MemoryNetwork` joins `MemorySwarm` nodes. Time comes from the given clock, chance from
the given source, so that one seed replays everything. Listeners are called from the
clock's callbacks, and inside `thaw`, `heal`, `resume` and `stop`; never inside a command.

What it leaves out: a path that stays closed never breaks a connection by itself, where
the native node gives up after some unanswered pings; `break_connection` does that here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

import msgspec

from mycel.core.identifiers import PeerId
from mycel.core.rights import Rights
from mycel.swarm.errors import InvalidAddress
from mycel.swarm.interface import (
    Admission,
    DialFailure,
    Liveness,
    StreamProtocol,
    SwarmListener,
)
from mycel.testing.swarm.memory_connection import Connection, ConnectionEnd
from mycel.testing.swarm.memory_dht import MemoryDht
from mycel.testing.swarm.memory_node import MemorySwarm

_OBJECTIONS = {"expired": "has expired", "revoked": "was revoked"}
__all__ = ["Clock", "Faults", "MemoryNetwork", "MemorySwarm"]


class Clock(Protocol):
    """Virtual or real time. Callbacks for one instant run in the order they were set."""

    def now(self) -> float: ...
    def call_at(self, when: float, callback: Callable[[], None]) -> None: ...


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong by itself. Everything else is asked for by the network's methods."""

    delay_seconds_min: float = 0.0
    delay_seconds_max: float = 0.0
    """Each frame, heartbeat, dial and gossip takes so long; streams keep their order."""
    break_per_frame: float = 0.0
    """Probability that a written frame breaks the connection that carries it."""
    break_per_second: float = 0.0
    """Rate at which a standing connection breaks."""
    stall_per_second: float = 0.0
    """Rate at which a standing connection stops to move anything…"""
    stall_seconds_max: float = 0.0
    """…for at most this long."""
    gossip_loss: float = 0.0
    gossip_repeat: float = 0.0
    """Probability, per receiver, that a message is lost, or comes twice."""
    dht_loss: float = 0.0
    """Probability that a search does not find a provider or record that is there."""
    knock_loss: float = 0.0
    """Probability that a knock, or the answer to it, is lost; 1 where they are filtered."""
    dial_timeout_seconds: float = 5.0
    """When a dial or the opening of a stream that nobody answers fails."""


class MemoryNetwork:
    """Where in-memory nodes meet, and where faults are made."""

    def __init__(self, clock: Clock, random: Random, faults: Faults | None = None) -> None:
        self.clock = clock
        self.random = random
        self.faults = faults or Faults()
        self.is_instant = self.faults.delay_seconds_max <= 0
        self.dht = MemoryDht(self)
        self._nodes: dict[PeerId, MemorySwarm] = {}
        self._addresses: dict[str, PeerId] = {}
        self._connections: dict[frozenset[PeerId], Connection] = {}
        self._partitions: set[frozenset[PeerId]] = set()
        self._expelled: set[PeerId] = set()
        self._last_number = 0

    def start(
        self,
        peer: PeerId,
        listener: SwarmListener,
        protocols: Sequence[StreamProtocol],
        *,
        liveness: Liveness | None = None,
        roles: frozenset[str] = frozenset(),
        revocation_ids: tuple[bytes, ...] = (),
        clock_offset_seconds: float = 0.0,
    ) -> MemorySwarm:
        """Starts a node, or starts it again after `kill`; its address stays the same.

        `clock_offset_seconds` is what its own clock, in heartbeats and arrival times, has
        beyond the network's.
        """
        assert peer not in self._nodes, f"{peer} runs already"
        node = MemorySwarm(
            self,
            peer,
            listener,
            protocols,
            liveness or Liveness(),
            Rights(roles=roles, revocation_ids=revocation_ids, is_bound=True),
            clock_offset_seconds,
        )
        self._nodes[peer] = node
        self._addresses[self.address_of(peer)] = peer
        return node

    def find(self, peer: PeerId) -> MemorySwarm | None:
        return self._nodes.get(peer)

    def address_of(self, peer: PeerId) -> str:
        return f"/memory/{peer}/p2p/{peer}"

    # Faults on demand.

    def break_connection(
        self,
        one: PeerId,
        other: PeerId,
        *,
        cause: str = "the connection was lost",
        own_cause: str | None = None,
    ) -> None:
        """Breaks it for both; each stream loses a suffix of its own in each direction.

        With `own_cause` it is `one` that breaks it, and hears of it at once.
        """
        connection = self._connections.pop(frozenset((one, other)), None)
        if connection is None:
            return
        connection.broken = True
        connection.stalled = False
        near, far = connection.end_of(one), connection.end_of(other)
        if far.node.alive:
            far.lose(cause)
        if not near.node.alive:
            return
        if own_cause is None:
            near.lose(cause)
        else:  # its own doing: it need not hear of it over the network
            near.node.later(lambda: near.finish(own_cause))

    def kill(self, peer: PeerId) -> None:
        """The process dies: nothing is told to it any more, and its address refuses."""
        node = self._nodes.pop(peer)
        node.alive = False
        self.dht.node_ended(peer)
        for other in list(node.ends):
            self.break_connection(peer, other)

    def freeze(self, peer: PeerId) -> None:
        """As by SIGSTOP: it sends nothing more and hears nothing until `thaw`."""
        self._nodes[peer].frozen = True

    def thaw(self, peer: PeerId) -> None:
        """What came meanwhile is delivered now, and has arrived now."""
        node = self._nodes.get(peer)
        if node is not None and node.frozen:
            node.thaw()

    def partition(self, one: PeerId, other: PeerId) -> None:
        """Nothing passes between the two, and neither is told; see `heal`."""
        self._partitions.add(frozenset((one, other)))

    def heal(self, one: PeerId, other: PeerId) -> None:
        self._partitions.discard(frozenset((one, other)))
        self._look_between(one, other)

    def stall(self, one: PeerId, other: PeerId) -> None:
        """Their connection stops to move anything, until `resume`."""
        connection = self._connections.get(frozenset((one, other)))
        if connection is not None:
            connection.stalled = True

    def resume(self, one: PeerId, other: PeerId) -> None:
        connection = self._connections.get(frozenset((one, other)))
        if connection is not None:
            connection.stalled = False
            connection.look()

    def expel(self, peer: PeerId) -> None:
        """Its token is good no more: connections break, dials are not admitted."""
        self._expelled.add(peer)
        node = self._nodes.get(peer)
        for other in list(node.ends) if node is not None else []:
            self.break_connection(peer, other, cause="the peer's token has expired")

    def is_partitioned(self, one: PeerId, other: PeerId) -> bool:
        return bool(self._partitions) and frozenset((one, other)) in self._partitions

    # What nodes ask for.

    def dial_peer(self, node: MemorySwarm, peer: PeerId) -> None:
        node.later(
            lambda: self._answer_dial(node, f"/p2p/{peer}", peer, peer),
            self.delay() + self.delay(),
        )

    def dial(self, node: MemorySwarm, address: str) -> None:
        target = self.peer_at(address)
        parts = address.split("/")
        expected = PeerId(parts[4]) if len(parts) == 5 else target
        node.later(
            lambda: self._answer_dial(node, address, target, expected),
            self.delay() + self.delay(),
        )

    def knock(self, node: MemorySwarm, peer: PeerId, target: PeerId) -> None:
        seconds = self.delay() + self.delay()

        def answer() -> None:
            is_awake = target in self._nodes and self._reaches(node, target)
            if is_awake and not self.happens(self.faults.knock_loss):
                node.listener.knocked(peer, seconds)

        node.later(answer, seconds)

    def _answer_dial(
        self, node: MemorySwarm, address: str, target: PeerId, expected: PeerId
    ) -> None:
        tell = node
        other = self._nodes.get(target)
        if frozenset((node.peer, target)) in self._connections:
            tell.dial_succeeded(address, target)
        elif not self._reaches(node, target):
            node.later(
                lambda: tell.dial_failed(address, DialFailure.SILENT, "no answer in time"),
                self.faults.dial_timeout_seconds,
            )
        elif other is None:
            tell.dial_failed(address, DialFailure.REFUSED, "connection refused")
        elif other is node:
            tell.dial_failed(address, DialFailure.OTHER, "this is the node's own address")
        elif target != expected:
            tell.dial_failed(address, DialFailure.OTHER, f"{target} listens there")
        elif (objection := self._objection(node, other)) is not None:
            text = f"token {_OBJECTIONS[objection]}"
            failure = DialFailure.NOT_ADMITTED
            tell.dial_failed(address, failure, f"refused by the peer: {text}", objection)
            other.later(lambda: other.listener.refused(f"/memory/{node.peer}", text))
        else:
            self._connect(node, other)
            tell.dial_succeeded(address, target)

    def _objection(self, node: MemorySwarm, other: MemorySwarm) -> str | None:
        """Why the hello of these two fails, if it does: one of `_OBJECTIONS`."""
        if node.peer in self._expelled or other.peer in self._expelled:
            return "expired"
        if other.knows_revoked(node.rights) or node.knows_revoked(other.rights):
            return "revoked"
        return None

    def _connect(self, dialer: MemorySwarm, acceptor: MemorySwarm) -> None:
        for node, peer in ((dialer, acceptor.peer), (acceptor, dialer.peer)):
            old = node.ends.get(peer)
            if old is not None:
                old.finish("the connection was lost")
        connection = Connection(dialer, acceptor)
        self._connections[frozenset((dialer.peer, acceptor.peer))] = connection
        for end in (connection.dialer, connection.acceptor):
            other = self._nodes[end.peer]
            end.node.ends[end.peer] = end
            end.rtt_seconds = self.delay() + self.delay()
            admission = Admission(
                roles=other.rights.roles,
                rights=other.rights,
                revocations_differ=other.revoked != end.node.revoked,
            )
            end.node.listener.connected(
                end.peer, admission, self.address_of(end.peer), relayed=False
            )
            end.node.listener.round_trip(end.peer, end.rtt_seconds)
        self._set_faults(connection)

    def open_stream(self, node: MemorySwarm, peer: PeerId, protocol: StreamProtocol) -> None:
        connection = self._connections.get(frozenset((node.peer, peer)))

        def fail(error: str) -> None:
            node.listener.stream_failed(peer, protocol.name, error)

        def answer() -> None:
            if connection is None:
                fail("the peer is not connected")
            elif connection.broken:
                fail("the connection was lost")
            elif not connection.end_of(peer).is_open():
                seconds = self.faults.dial_timeout_seconds
                node.later(lambda: fail("the peer did not answer in time"), seconds)
            elif connection.end_of(peer).node.protocol(protocol.name) is None:
                fail("the peer does not speak this protocol")
            else:
                connection.open_stream(connection.end_of(node.peer), protocol)

        node.later(answer, self.delay())

    def publish(self, node: MemorySwarm, topic: str, data: bytes) -> None:
        for receiver in self._gossip_receivers(node, topic):
            copies = 1
            if self.happens(self.faults.gossip_loss):
                copies = 0
            elif self.happens(self.faults.gossip_repeat):
                copies = 2
            for _ in range(copies):
                self._gossip(receiver, topic, node.peer, data)

    def _gossip(self, receiver: MemorySwarm, topic: str, source: PeerId, data: bytes) -> None:
        receiver.later(lambda: receiver.hear_gossip(topic, source, data), self.delay())

    def _gossip_receivers(self, publisher: MemorySwarm, topic: str) -> list[MemorySwarm]:
        """Who is joined to the publisher by subscribed nodes that pass messages on."""
        found = {publisher.peer: publisher}
        waiting = [publisher]
        for node in waiting:
            for peer, end in node.ends.items():
                other = self._nodes.get(peer)
                if other is None or peer in found or topic not in other.topics:
                    continue
                if end.connection.broken or self.is_partitioned(node.peer, peer):
                    continue
                found[peer] = other
                if not other.frozen:
                    waiting.append(other)
        return list(found.values())[1:]

    def stop_node(self, node: MemorySwarm) -> None:
        """The orderly end: streams are closed, then the connections."""
        if not node.alive:
            return
        for end in list(node.ends.values()):
            for stream in list(end.streams.values()):
                stream.close()
            connection = self._connections.pop(frozenset((node.peer, end.peer)), None)
            if connection is not None:
                connection.broken = True
                connection.stalled = False
                connection.other_end(end).lose_in_order("the peer stopped")
            end.finish("this node stopped", stream_error="")
        node.alive = False
        self._nodes.pop(node.peer, None)
        self.dht.node_ended(node.peer)

    # Small things.

    def peer_at(self, address: str) -> PeerId:
        parts = address.split("/")
        if len(parts) not in (3, 5) or parts[:2] != ["", "memory"] or not parts[2]:
            raise InvalidAddress(f"{address!r} is no address of this network")
        return PeerId(parts[2])

    def roles_of(self, peer: PeerId) -> frozenset[str]:
        node = self._nodes.get(peer)
        return frozenset() if node is None else node.rights.roles

    def delay(self) -> float:
        if self.is_instant:
            return 0.0
        return self.random.uniform(self.faults.delay_seconds_min, self.faults.delay_seconds_max)

    def next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def frame_written(self, end: ConnectionEnd) -> None:
        if self.happens(self.faults.break_per_frame):
            self.break_connection(end.node.peer, end.peer)

    def happens(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def _reaches(self, node: MemorySwarm, peer: PeerId) -> bool:
        other = self._nodes.get(peer)
        frozen = other is not None and other.frozen
        return not frozen and not self.is_partitioned(node.peer, peer)

    def _look_between(self, one: PeerId, other: PeerId) -> None:
        for peer, opposite in ((one, other), (other, one)):
            node = self._nodes.get(peer)
            end = node.ends.get(opposite) if node is not None else None
            if end is not None:
                end.look()

    def _set_faults(self, connection: Connection) -> None:
        now = self.clock.now()
        one, other = connection.dialer.node.peer, connection.acceptor.node.peer

        def break_it() -> None:
            if not connection.broken:
                self.break_connection(one, other)

        def stall_it() -> None:
            if connection.broken:
                return
            connection.stalled = True
            seconds = self.random.uniform(0, self.faults.stall_seconds_max)
            self.clock.call_at(self.clock.now() + seconds, go_on)

        def go_on() -> None:
            connection.stalled = False
            connection.look()
            if not connection.broken:
                self.clock.call_at(
                    self.clock.now() + self.random.expovariate(self.faults.stall_per_second),
                    stall_it,
                )

        if self.faults.break_per_second > 0:
            seconds = self.random.expovariate(self.faults.break_per_second)
            self.clock.call_at(now + seconds, break_it)
        if self.faults.stall_per_second > 0:
            seconds = self.random.expovariate(self.faults.stall_per_second)
            self.clock.call_at(now + seconds, stall_it)
