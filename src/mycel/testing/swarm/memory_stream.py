"""Streams of the in-memory swarm: what is under way to one end, and that end itself.

    write ──▶ the other end's inbox ── time passes, path is open ──▶ listener

An inbox delivers in order; it holds its items while its node is frozen or the path is
closed. Whatever the listener does in a callback only fills inboxes and sets timers, so
that no callback runs inside another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from mycel.core.identifiers import PeerId
from mycel.swarm.errors import FrameTooLong
from mycel.swarm.interface import StreamProtocol

if TYPE_CHECKING:
    from mycel.testing.swarm.memory_connection import ConnectionEnd
    from mycel.testing.swarm.memory_node import MemorySwarm

_PREFIX_BYTES: Final = 4


class Item(Enum):
    """What can be under way."""

    OPENED = "opened"
    FRAME = "frame"
    HEARTBEAT = "heartbeat"
    END = "end"


class Inbox:
    """Items under way to one end, in order. `reached` is called when some have arrived."""

    __slots__ = ("_last_at", "_node", "_path", "_reached", "_timer_set", "items")

    def __init__(
        self, node: MemorySwarm, path: Callable[[], bool], reached: Callable[[], None]
    ) -> None:
        self._node = node
        self._path = path
        self._reached = reached
        self._timer_set = False
        self._last_at = 0.0
        self.items: deque[tuple[float, Item, bytes | float | str]] = deque()

    def add(self, item: Item, value: bytes | float | str = "") -> None:
        network = self._node.network
        # Nothing overtakes what was sent before it.
        at = max(self._last_at, network.clock.now() + network.delay())
        self._last_at = at
        self.items.append((at, item, value))
        self._set_timer()

    def is_clear(self) -> bool:
        """Whether what is sent now would be here now: a heartbeat then needs no timer."""
        return not self.items and self._node.network.is_instant and self._path()

    def lose_suffix(self) -> None:
        """Loses an unknown number of the latest items."""
        kept = self._node.network.random.randint(0, len(self.items))
        while len(self.items) > kept:
            self.items.pop()

    def next(self) -> tuple[Item, bytes | float | str] | None:
        """The next item that has arrived; nothing while the path is closed."""
        if not self.items or self.items[0][0] > self._node.network.clock.now():
            return None
        if not self._path():
            return None
        _, item, value = self.items.popleft()
        return item, value

    def look(self) -> None:
        """Delivers what has arrived. Called again when a closed path opens."""
        if self.items and self._path():
            self._reached()
            self._set_timer()

    def _set_timer(self) -> None:
        if self.items and not self._timer_set:
            self._timer_set = True
            self._node.network.clock.call_at(self.items[0][0], self._on_time)

    def _on_time(self) -> None:
        self._timer_set = False
        self.look()


class MemoryStream:
    """One end of a stream."""

    def __init__(
        self, connection: ConnectionEnd, number: int, protocol: StreamProtocol, ours: bool
    ) -> None:
        self._connection = connection
        self._node = connection.node
        self._protocol = protocol
        self._ours = ours
        self._announced = False
        self._closing = False
        self._full = False
        self._unsent_bytes = 0
        self._heard_at = 0.0
        self._told_silence_at = 0.0
        self.number = number
        self.ended = False
        self.inbox = Inbox(self._node, connection.is_open, self._on_items)
        self.other: MemoryStream

    def __repr__(self) -> str:
        return f"<MemoryStream {self.number} {self.protocol} with {self.peer}>"

    @property
    def peer(self) -> PeerId:
        return self._connection.peer

    @property
    def protocol(self) -> str:
        return self._protocol.name

    @property
    def full(self) -> bool:
        return self._full

    def write(self, frame: bytes) -> None:
        if len(frame) > self._protocol.max_frame_bytes:
            raise FrameTooLong(
                f"a frame of {len(frame)} bytes is over the protocol's limit of "
                f"{self._protocol.max_frame_bytes}"
            )
        if self._closing or self.ended or not self._node.alive:
            return
        self._unsent_bytes += len(frame) + _PREFIX_BYTES
        if self._unsent_bytes > self._protocol.write_high_bytes:
            self._full = True
        if not self.other.ended:
            self.other.inbox.add(Item.FRAME, bytes(frame))
        self._node.network.frame_written(self._connection)

    def close(self) -> None:
        if self._closing or self.ended:
            return
        self._closing = True
        if not self.other.ended:
            self.other.inbox.add(Item.END, "")
        self._node.later(lambda: self.end(""))

    # What the network does with it.

    def announce(self) -> None:
        """The stream stands: the listener hears of it before anything else about it."""
        if self.ended:
            return
        self._announced = True
        self._heard_at = self._told_silence_at = self._node.network.clock.now()
        self._node.listener.stream_opened(self, self._ours)
        if self._protocol.heartbeats:
            self._beat()
            self._set_watch(self._heard_at + self._node.liveness.silence_seconds)

    def end(self, error: str) -> None:
        """Tells the end, once."""
        if self.ended:
            return
        self.ended = True
        self._full = False
        self.inbox.items.clear()
        self._connection.streams.pop(self.number, None)
        listener = self._node.listener
        if self._announced:
            listener.stream_closed(self, error)
        elif self._ours:
            listener.stream_failed(self.peer, self.protocol, error or "the peer closed it")
        self._connection.settle()

    def cut(self, error: str) -> None:
        """The connection broke: what is under way to this end loses its tail."""
        self.inbox.lose_suffix()
        self.inbox.add(Item.END, error)

    def _on_items(self) -> None:
        frames: list[bytes] = []
        arrived_at = self._node.now()
        while not self.ended and (entry := self.inbox.next()) is not None:
            item, value = entry
            if item is Item.FRAME:
                assert isinstance(value, bytes)
                frames.append(value)
                continue
            self._hand_over(frames, arrived_at)
            frames = []
            if item is Item.HEARTBEAT and not self.ended:
                assert isinstance(value, float)
                self.hear(value)
            elif item is Item.OPENED:
                self.announce()
            elif item is Item.END:
                assert isinstance(value, str)
                self.end(value)
        self._hand_over(frames, arrived_at)

    def _hand_over(self, frames: list[bytes], arrived_at: float) -> None:
        if not frames or self.ended:
            return
        self._heard_at = self._node.network.clock.now()
        self._connection.heard_at = arrived_at
        self.other.delivered(sum(map(len, frames)) + _PREFIX_BYTES * len(frames))
        self._node.listener.frames(self, frames, arrived_at)

    def delivered(self, count_bytes: int) -> None:
        """So much of what this end wrote has reached the other."""
        self._unsent_bytes -= count_bytes
        if self._full and self._unsent_bytes <= self._protocol.write_high_bytes // 4:
            self._full = False
            self._node.later(self._tell_writable)

    def _tell_writable(self) -> None:
        if not self.ended:
            self._node.listener.writable(self)

    def _beat(self) -> None:
        if self.ended or self._closing or not self._node.alive:
            return
        if self._node.frozen:
            self._node.hold(self._beat)
            return
        other = self.other
        if not other.ended:
            if other.inbox.is_clear():
                other.hear(self._node.now())
            else:
                other.inbox.add(Item.HEARTBEAT, self._node.now())
        clock = self._node.network.clock
        clock.call_at(clock.now() + self._node.liveness.heartbeat_seconds, self._beat)

    def hear(self, peer_clock: float) -> None:
        """A heartbeat has come."""
        self._heard_at = self._node.network.clock.now()
        self._connection.heard_at = self._node.now()
        self._node.listener.heartbeat(self, peer_clock, self._connection.heard_at)

    def _set_watch(self, at: float) -> None:
        self._node.network.clock.call_at(at, self._watch)

    def _watch(self) -> None:
        """Looks whether silence is to be told; there is one such timer per stream."""
        if self.ended or not self._node.alive:
            return
        if self._node.frozen:
            self._node.hold(self._watch)
            return
        liveness = self._node.liveness
        now = self._node.network.clock.now()
        due = self._heard_at + liveness.silence_seconds
        if self._told_silence_at > self._heard_at:
            due = self._told_silence_at + liveness.repeat_seconds
        if due <= now:
            self._told_silence_at = now
            self._node.listener.silent(self, now - self._heard_at)
            due = now + liveness.repeat_seconds
        self._set_watch(due)
