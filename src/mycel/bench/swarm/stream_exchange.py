"""Two processes and one stream between them; plain asyncio TCP in the same place.

Both sides of both ways are callbacks without a future or a task per request, and both run
on the product's event loop.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Callable
from typing import Any, Final, cast

import uvloop

from mycel.bench.percentiles import median
from mycel.core.identifiers import PeerId
from mycel.swarm.interface import WORK_PROTOCOL, Stream
from mycel.swarm.libp2p import Libp2pSwarm
from mycel.swarm.null_listener import IndifferentListener

from .child_calls import answer_calls
from .measure_plan import MESSAGE_BYTES
from .node_host import start_node

CHUNK_BYTES: Final = 256 * 1024
LISTEN: Final = "/ip4/127.0.0.1/tcp/0"
_BULK: Final = b"bulk"
_NUMBER: Final = struct.Struct(">Q")
_LENGTH: Final = struct.Struct(">I")
_PADDING: Final = b"x" * (MESSAGE_BYTES - _NUMBER.size)


class Pump:
    """Keeps so many requests in flight until its time is over."""

    def __init__(self, in_flight: int, seconds: float) -> None:
        self.latencies: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight = in_flight
        self._sent: dict[int, float] = {}
        self._next = 0
        self._began = time.perf_counter()
        self._ends_at = self._began + seconds

    def first(self) -> list[bytes]:
        return [self._request() for _ in range(self._in_flight)]

    def answered(self, answers: list[bytes]) -> list[bytes]:
        """What to send next."""
        now = time.perf_counter()
        for answer in answers:
            assert len(answer) == MESSAGE_BYTES
            self.latencies.append(now - self._sent.pop(_NUMBER.unpack_from(answer)[0]))
        if now < self._ends_at:
            return [self._request() for _ in answers]
        if not self._sent and not self.done.done():
            self._ends_at = now
            self.done.set_result(None)
        return []

    def _request(self) -> bytes:
        self._next += 1
        self._sent[self._next] = time.perf_counter()
        return _NUMBER.pack(self._next) + _PADDING

    def figures(self) -> dict[str, float]:
        seconds = self._ends_at - self._began
        return {
            "per_s": len(self.latencies) / seconds,
            "ms_p50": median(self.latencies) * 1000,
        }


class Frames(asyncio.Protocol):
    """Frames behind a length of four bytes, over plain TCP."""

    def __init__(self, answer: Callable[[list[bytes]], list[bytes]]) -> None:
        self._answer = answer
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self, frames: list[bytes]) -> None:
        self._transport.write(b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        frames, at = [], 0
        while len(self._buffer) - at >= _LENGTH.size:
            start = at + _LENGTH.size
            end = start + _LENGTH.unpack_from(self._buffer, at)[0]
            if end > len(self._buffer):
                break
            frames.append(bytes(self._buffer[start:end]))
            at = end
        del self._buffer[:at]
        if frames:
            self.send(self._answer(frames))


class Echo(IndifferentListener):
    """Sends every request back; of bulk it only counts the bytes."""

    def __init__(self) -> None:
        self._expected = 0

    async def start(self, owner: str) -> dict[str, Any]:
        self._swarm = await start_node(self, bytes.fromhex(owner), "worker", LISTEN)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Frames(lambda frames: frames), "127.0.0.1")
        port = self._server.sockets[0].getsockname()[1]
        return {"address": self._swarm.addresses[0], "tcp_port": port}

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        for frame in frames:
            if self._expected:
                self._expected -= len(frame)
                if self._expected <= 0:
                    stream.write(_BULK)
            elif frame.startswith(_BULK):
                self._expected = _NUMBER.unpack_from(frame, len(_BULK))[0]
            else:
                stream.write(frame)


class Caller(IndifferentListener):
    """The other end."""

    def __init__(self) -> None:
        self._take: Callable[[Stream, list[bytes]], None] = lambda _stream, _frames: None
        self._dialled: asyncio.Future[PeerId] | None = None
        self._opened: asyncio.Future[Stream] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._has_room: asyncio.Event = asyncio.Event()

    async def start(self, owner: str, address: str) -> None:
        self._address = address
        self._swarm = await start_node(self, bytes.fromhex(owner), "worker", LISTEN)

    async def open(self) -> None:
        peer = await self._dial()
        self._opened = asyncio.get_running_loop().create_future()
        self._swarm.open_stream(peer, WORK_PROTOCOL)
        self._stream = await self._opened

    async def _dial(self) -> PeerId:
        self._dialled = asyncio.get_running_loop().create_future()
        self._swarm.dial(self._address)
        return await self._dialled

    async def requests(self, in_flight: int, seconds: float) -> dict[str, float]:
        pump = Pump(in_flight, seconds)

        def take(stream: Stream, frames: list[bytes]) -> None:
            for request in pump.answered(frames):
                stream.write(request)

        self._take = take
        for request in pump.first():
            self._stream.write(request)
        await pump.done
        return pump.figures()

    async def tcp_requests(self, port: int, in_flight: int, seconds: float) -> dict[str, float]:
        pump = Pump(in_flight, seconds)
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(
            lambda: Frames(pump.answered), "127.0.0.1", port
        )
        protocol.send(pump.first())
        await pump.done
        transport.close()
        return pump.figures()

    async def bulk(self, total: int) -> float:
        """Millions of bytes a second."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._take = lambda _stream, _frames: done.set_result(None)
        chunk = os.urandom(CHUNK_BYTES)
        chunks = -(-total // CHUNK_BYTES)
        began = time.perf_counter()
        self._stream.write(_BULK + _NUMBER.pack(chunks * CHUNK_BYTES))
        for _ in range(chunks):
            self._stream.write(chunk)
            if self._stream.full:
                self._has_room.clear()
                await self._has_room.wait()
        await done
        return chunks * CHUNK_BYTES / (time.perf_counter() - began) / 1e6

    async def hellos(self, count: int) -> list[float]:
        """The milliseconds that each of so many hellos has added to its connection."""
        took = []
        for _ in range(count):
            before = self._swarm.figures().hello_microseconds
            peer = await self._dial()
            took.append((self._swarm.figures().hello_microseconds - before) / 1000)
            self._gone = asyncio.get_running_loop().create_future()
            self._swarm.disconnect(peer)
            await self._gone
        return took

    def disconnected(self, peer: PeerId, cause: str) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        self._take(stream, frames)

    def writable(self, stream: Stream) -> None:
        self._has_room.set()

    def dial_succeeded(self, address: str, peer: PeerId) -> None:
        if self._dialled is not None and not self._dialled.done():
            self._dialled.set_result(peer)

    def dial_failed(self, address: str, failure: object, error: str, refusal: str = "") -> None:
        if self._dialled is not None and not self._dialled.done():
            self._dialled.set_exception(ConnectionError(error))

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(stream)

    @property
    def swarm(self) -> Libp2pSwarm:
        return self._swarm


async def _main() -> None:
    echo, caller = Echo(), Caller()
    await answer_calls(
        {
            "echo": echo.start,
            "start": caller.start,
            "hellos": caller.hellos,
            "open": caller.open,
            "requests": caller.requests,
            "tcp_requests": caller.tcp_requests,
            "bulk": caller.bulk,
        }
    )
    os._exit(0)


if __name__ == "__main__":
    uvloop.run(_main())
