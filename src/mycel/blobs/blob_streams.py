"""Blob streams as something to wait on: frames in, frames out, and the end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from mycel.core.identifiers import PeerId
from mycel.core.principal import Family
from mycel.swarm.interface import Stream, Swarm

from .blob_messages import (
    BLOB_PROTOCOL,
    FRAME_BYTES,
    FRAME_BYTES_MAX,
    BlobMessage,
    Refused,
    Unreadable,
    decode,
    encode,
)
from .errors import BlobGone, BlobRefused, TransferInterrupted

if TYPE_CHECKING:
    from mycel._native import Slice
    from mycel._native import Stream as FileStream

SILENCE_SECONDS: Final = 60.0
"""A transfer without a byte for so long is broken off."""
OPEN_SECONDS: Final = 20.0

Frame: TypeAlias = "bytes | Slice"
Kind = TypeVar("Kind", bound=BlobMessage)


class Channel:
    """One stream, for one coroutine."""

    def __init__(self, stream: Stream, accuse: Callable[[PeerId], None] = lambda _: None) -> None:
        """`accuse` is told of a frame that is no message."""
        self._stream = cast("FileStream", stream)
        self._accuse = accuse
        self._frames: deque[Frame] = deque()
        self._waiting_bytes = 0
        self._ended: str | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def peer(self) -> PeerId:
        return self._stream.peer

    def close(self) -> None:
        self._stream.close()

    def write(self, message: BlobMessage) -> None:
        self._stream.write(encode(message))

    def queue_file(self, descriptor: int, offset: int, end: int) -> int:
        """Sends as much of this part of a file as there is room for; how much that was. For
        threads: it reads the disk."""
        return self._stream.write_file(descriptor, offset, end - offset, FRAME_BYTES)

    async def room(self) -> None:
        """Returns when the stream is not full."""
        if self._stream.full and self._ended is None:
            self._room.clear()
            await self._wait(self._room)
        self._check_open()

    async def read_all(self, wanted: int) -> list[Frame]:
        """All frames that are here, once they have so many bytes, or no more come."""
        await self._until_frames(wanted)
        frames = list(self._frames)
        self._frames.clear()
        self._waiting_bytes = 0
        return frames

    async def _until_frames(self, wanted: int) -> None:
        while self._waiting_bytes < wanted:
            if self._ended is not None and self._frames:
                return
            self._check_open()
            self._news.clear()
            await self._wait(self._news)

    def _check_open(self) -> None:
        if self._ended is not None:
            raise TransferInterrupted(self._ended or "the other end has closed the stream")

    async def _wait(self, event: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                await event.wait()
        except TimeoutError:
            raise TransferInterrupted(f"nothing for {SILENCE_SECONDS:g} s") from None

    async def read(self) -> BlobMessage:
        await self._until_frames(1)
        frame = self._frames.popleft()
        self._waiting_bytes -= _weight(frame)
        try:
            return decode(frame)
        except Unreadable:
            self._accuse(self.peer)
            raise

    # What the swarm tells

    def frames(self, frames: Sequence[Frame]) -> None:
        self._frames.extend(frames)
        self._waiting_bytes += sum(map(_weight, frames))
        self._news.set()

    def writable(self) -> None:
        self._room.set()

    def ended(self, error: str) -> None:
        self._ended = error
        self._news.set()
        self._room.set()


class Channels:
    """The blob streams of one node. `serve` is called with each that another node opens."""

    def __init__(self, serve: Callable[[Channel], None]) -> None:
        self._serve = serve
        self._open: dict[Stream, Channel] = {}
        self._opening: dict[PeerId, deque[asyncio.Future[Channel]]] = {}
        self._dialling: dict[PeerId, list[asyncio.Future[None]]] = {}
        self._swarm: Swarm | None = None
        self.is_connected: Callable[[PeerId], bool] = lambda _: False
        self.family_of: Callable[[PeerId], Family | None] = lambda _: None

    def start(
        self,
        swarm: Swarm,
        is_connected: Callable[[PeerId], bool],
        family_of: Callable[[PeerId], Family | None] = lambda _: None,
    ) -> None:
        self._swarm = swarm
        self.is_connected = is_connected
        self.family_of = family_of

    def _accuse(self, peer: PeerId) -> None:
        if self._swarm is not None:
            self._swarm.accuse(peer)

    @property
    def peer(self) -> PeerId:
        """This node's own."""
        return self._joined().peer

    def stop(self) -> None:
        self._swarm = None
        for waiting in self._opening.values():
            for future in waiting:
                _fail(future, "this node is stopping")
        for channel in list(self._open.values()):
            channel.ended("this node is stopping")
            channel.close()

    async def open(self, peer: PeerId, addresses: tuple[str, ...] = ()) -> Channel:
        """A stream to that peer, which is dialled if it has to be. Raises `TransferInterrupted`."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                if not self.is_connected(peer):
                    await self._dial(peer, addresses)
                future: asyncio.Future[Channel] = loop.create_future()
                self._opening.setdefault(peer, deque()).append(future)
                self._joined().open_stream(peer, BLOB_PROTOCOL)
                return await future
        except TimeoutError:
            raise TransferInterrupted(f"{peer} does not answer") from None

    def _joined(self) -> Swarm:
        if self._swarm is None:
            raise TransferInterrupted("this node is stopping")
        return self._swarm

    async def _dial(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._dialling.setdefault(peer, []).append(future)
        self._joined().dial_peer(peer, addresses)
        await future

    # What the swarm tells

    def dialled(self, peer: PeerId, error: str) -> None:
        for future in self._dialling.pop(peer, ()):
            if error:
                _fail(future, f"{peer} cannot be reached: {error}")
            elif not future.done():
                future.set_result(None)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        channel = self._open[stream] = Channel(stream, self._accuse)
        if not ours:
            self._serve(channel)
            return
        future = self._next(stream.peer)
        if future is None:
            channel.close()  # whoever wanted it has given up
        else:
            future.set_result(channel)

    def stream_failed(self, peer: PeerId, error: str) -> None:
        future = self._next(peer)
        if future is not None:
            _fail(future, error)

    def _next(self, peer: PeerId) -> asyncio.Future[Channel] | None:
        """Streams to one peer are alike: the first that stands is for whoever asked first."""
        waiting = self._opening.get(peer, deque())
        while waiting:
            future = waiting.popleft()
            if not future.done():
                return future
        self._opening.pop(peer, None)
        return None

    def frames(self, stream: Stream, frames: Sequence[Frame]) -> None:
        channel = self._open.get(stream)
        if channel is not None:
            channel.frames(frames)

    def writable(self, stream: Stream) -> None:
        channel = self._open.get(stream)
        if channel is not None:
            channel.writable()

    def stream_closed(self, stream: Stream, error: str) -> None:
        channel = self._open.pop(stream, None)
        if channel is not None:
            channel.ended(error)


def _weight(frame: Frame) -> int:
    """Nobody sends frames with nothing in them: whoever waits for more is to see that at once."""
    return len(frame) or FRAME_BYTES_MAX


def _fail(future: asyncio.Future[Any], error: str) -> None:
    if not future.done():
        future.set_exception(TransferInterrupted(error))


async def expect(channel: Channel, kind: type[Kind]) -> Kind:
    """The next message, if it is of that kind; what was refused is raised."""
    message = await channel.read()
    if isinstance(message, Refused):
        kind_of_no = BlobGone if message.gone else BlobRefused
        raise kind_of_no(message.reason, again=message.again)
    if not isinstance(message, kind):
        raise TransferInterrupted(f"{channel.peer} answered with {type(message).__name__}")
    return message
