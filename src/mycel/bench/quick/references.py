"""What the machine itself gives, in the same minute: the figures are read against these."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, cast

from mycel.bench.percentiles import median

BLOCK: Final = b"\xa5" * 4096
MESSAGE: Final = b"m" * 256
CONNECTIONS: Final = 32
SPAWNS_IN_FLIGHT: Final = 2


def fsync_ms_p50(folder: Path, count: int) -> float:
    """Appending 4 KiB to a file and having it on the disk."""
    path = folder / "reference.dat"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    samples = []
    try:
        for _ in range(count):
            began = time.perf_counter()
            os.write(descriptor, BLOCK)
            os.fdatasync(descriptor)
            samples.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return median(samples) * 1000


def spawns_per_s(count: int) -> float:
    """`/bin/true` by posix_spawn, two in flight. No other child of this process may run."""
    running: set[int] = set()
    began = time.perf_counter()
    for _ in range(count):
        if len(running) == SPAWNS_IN_FLIGHT:
            running.discard(os.waitpid(-1, 0)[0])
        running.add(os.posix_spawn("/bin/true", ["/bin/true"], {}))
    while running:
        running.discard(os.waitpid(-1, 0)[0])
    return count / (time.perf_counter() - began)


def echoes_per_s(count: int) -> float:
    """256 bytes there and back over TCP, 32 in flight, between two processes of plain asyncio."""
    command = [sys.executable, "-m", "mycel.bench.quick.references"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            return asyncio.run(_exchange(port, count))
        finally:
            server.kill()


class _Server(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class _Caller(asyncio.Protocol):
    def __init__(self, exchanges: int, done: asyncio.Future[None]) -> None:
        self._left = exchanges
        self._missing = 0
        self._done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def start(self) -> None:
        self._missing = len(MESSAGE)
        self._transport.write(MESSAGE)

    def data_received(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing:
            return
        self._left -= 1
        if self._left:
            self.start()
        else:
            self._done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(error or ConnectionError("the echo server has gone"))


async def _exchange(port: int, count: int) -> float:
    loop = asyncio.get_running_loop()
    each = max(1, count // CONNECTIONS)
    ends = [loop.create_future() for _ in range(CONNECTIONS)]
    callers = []
    for end in ends:
        made = await loop.create_connection(lambda end=end: _Caller(each, end), "127.0.0.1", port)  # type: ignore[misc]
        callers.append(made)
    began = time.perf_counter()
    for _, caller in callers:
        caller.start()
    await asyncio.gather(*ends)
    seconds = time.perf_counter() - began
    for transport, _ in callers:
        transport.close()
    return each * CONNECTIONS / seconds


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Ends with the one who started it, also when that was killed.
    await loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(_serve())
