"""Drives `native/node/examples/hostile`: raw bytes on any protocol of a real connection."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
LINE_BYTES_MAX: Final = 64 << 20
ACCEPTED: Final = ("/mycel/gossip/1.1.0", "/mycel/gossip/1.0.0", "/ipfs/ping/1.0.0")
"""Gossipsub and ping turn their handlers off for a peer that does not speak them."""


class Refused(Exception):
    """The other side, or the way there, did not do it."""


def build() -> Path:
    """The program; cargo knows whether it has to be compiled."""
    command = ["cargo", "build", "--locked", "--release", "-p", "mycel-node"]
    command += ["--example", "hostile", "--message-format", "json-render-diagnostics"]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    environment = {
        "CARGO_TARGET_DIR": str(cache / "mycel" / "target"),
        "MYCEL_CHECKOUT": str(ROOT),
        **os.environ,
    }
    done = subprocess.run(
        command, cwd=ROOT / "native", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    messages = (json.loads(line) for line in done.stdout.splitlines())
    found = [one["executable"] for one in messages if one.get("executable")]
    return Path(found[-1])


class Pelted(NamedTuple):
    ended: int
    """The other side closed the stream."""
    silent: int
    """It neither answered nor closed in time."""
    failed: int
    """The stream could not be opened, or was cut while it was written."""


class Hostile:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[list[str]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            number, *answer = line.decode().rstrip("\n").split(" ")
            future = self._waiting.pop(int(number))
            if not future.done():  # whoever asked may have given up
                future.set_result(answer)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Refused("the hostile speaker has died"))

    async def _ask(self, name: str, *words: str) -> list[str]:
        assert self._process.stdin is not None
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(" ".join((name, str(number), *words)).encode() + b"\n")
        how, *rest = await answer
        if how == "failed":
            raise Refused(" ".join(rest))
        return [how, *rest]

    async def connect(self, seed: bytes, address: str) -> str:
        """A link; the hello has not been said yet."""
        return (await self._ask("connect", seed.hex(), address, ",".join(ACCEPTED)))[1]

    async def open(self, link: str, protocol: str) -> str:
        return (await self._ask("open", link, protocol))[1]

    async def write(self, stream: str, payload: bytes) -> None:
        await self._ask("write", stream, _hex(payload))

    async def read(self, stream: str, count: int, milliseconds: int) -> bytes:
        """Fewer bytes if the stream ended or the time was up."""
        return _bytes((await self._ask("read", stream, str(count), str(milliseconds)))[1])

    async def close(self, stream: str) -> None:
        await self._ask("close", stream)

    async def pelt(
        self, link: str, protocol: str, payloads: Sequence[bytes], wait_milliseconds: int
    ) -> Pelted:
        words = (link, protocol, str(wait_milliseconds), ",".join(map(_hex, payloads)))
        _, *counts = await self._ask("pelt", *words)
        return Pelted(*map(int, counts))

    async def flood(self, stream: str, per_second: float, payloads: Sequence[bytes]) -> bool:
        """Whether all could be written."""
        try:
            await self._ask("flood", stream, str(per_second), ",".join(map(_hex, payloads)))
        except Refused:
            return False
        return True

    async def leave(self, link: str) -> None:
        await self._ask("leave", link)

    async def sign(self, seed: bytes, message: bytes) -> bytes:
        return _bytes((await self._ask("sign", seed.hex(), _hex(message)))[1])

    async def stop(self) -> None:
        self._process.kill()
        await self._process.wait()
        await self._reader


@asynccontextmanager
async def hostile(program: Path) -> AsyncIterator[Hostile]:
    process = await asyncio.create_subprocess_exec(
        program,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
    )
    speaker = Hostile(process)
    try:
        yield speaker
    finally:
        await speaker.stop()


def _hex(payload: bytes) -> str:
    return payload.hex() or "-"


def _bytes(text: str) -> bytes:
    return b"" if text == "-" else bytes.fromhex(text)
