"""Connections of the in-memory swarm: two ends, each with its streams.

An end is gone for its node when the loss has reached it *and* its streams have ended, so
that the listener hears of the streams first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mycel.core.identifiers import PeerId
from mycel.swarm.interface import StreamProtocol
from mycel.testing.swarm.memory_stream import Inbox, Item, MemoryStream

if TYPE_CHECKING:
    from mycel.testing.swarm.memory_node import MemorySwarm


class ConnectionEnd:
    """One node's end of a connection."""

    def __init__(self, node: MemorySwarm, peer: PeerId, connection: Connection) -> None:
        self.node = node
        self.peer = peer
        self.connection = connection
        self.streams: dict[int, MemoryStream] = {}
        self.inbox = Inbox(node, self.is_open, self._on_items)
        self.connected_at = self.heard_at = node.now()
        self.rtt_seconds = 0.0
        self._lost: str | None = None
        self._told = False

    def is_open(self) -> bool:
        """Whether anything reaches this end now."""
        node = self.node
        return (
            node.alive
            and not node.frozen
            and not self.connection.stalled
            and not node.network.is_partitioned(node.peer, self.peer)
        )

    def lose(self, cause: str) -> None:
        """The connection broke; this end hears of it in time."""
        for stream in list(self.streams.values()):
            stream.cut(cause)
        self.inbox.add(Item.END, cause)

    def settle(self) -> None:
        """Tells the node that the peer is gone, once nothing is left of it."""
        if self._lost is not None and not self.streams and not self._told:
            self._told = True
            self.node.end_gone(self)
            self.node.listener.disconnected(self.peer, self._lost)

    def lose_in_order(self, cause: str) -> None:
        """The peer has closed its streams, and closes the connection behind them."""
        self.inbox.add(Item.END, cause)

    def finish(self, cause: str, stream_error: str | None = None) -> None:
        """Ends everything at once: the peer is back, or this node ends it."""
        for stream in list(self.streams.values()):
            stream.end(cause if stream_error is None else stream_error)
        if self._lost is None:
            self._lost = cause
        self.settle()

    def look(self) -> None:
        """Delivers what has waited for the path to open."""
        for stream in list(self.streams.values()):
            stream.inbox.look()
        self.inbox.look()

    def _on_items(self) -> None:
        while (entry := self.inbox.next()) is not None:
            self._lost = str(entry[1])
        self.settle()


class Connection:
    """What joins two nodes until it breaks."""

    def __init__(self, dialer: MemorySwarm, acceptor: MemorySwarm) -> None:
        self.network = dialer.network
        self.dialer = ConnectionEnd(dialer, acceptor.peer, self)
        self.acceptor = ConnectionEnd(acceptor, dialer.peer, self)
        self.stalled = False
        self.broken = False

    def end_of(self, peer: PeerId) -> ConnectionEnd:
        return self.dialer if self.dialer.node.peer == peer else self.acceptor

    def other_end(self, end: ConnectionEnd) -> ConnectionEnd:
        return self.acceptor if end is self.dialer else self.dialer

    def open_stream(self, opener: ConnectionEnd, protocol: StreamProtocol) -> None:
        """The acceptor hears of the stream now, the opener one delay later."""
        acceptor = self.other_end(opener)
        number = self.network.next_number()
        accepts = acceptor.node.protocol(protocol.name)
        assert accepts is not None, "the caller has checked that the peer speaks it"
        near = MemoryStream(opener, number, protocol, ours=True)
        far = MemoryStream(acceptor, number, accepts, ours=False)
        near.other, far.other = far, near
        opener.streams[number] = near
        acceptor.streams[number] = far
        near.inbox.add(Item.OPENED)
        far.announce()

    def look(self) -> None:
        self.dialer.look()
        self.acceptor.look()
