"""Children that answer calls: one JSON line in, one JSON line out.

A child ends when its standard input does, and the kernel kills one that is too busy to see
that: none outlives the one who started it, not even one that was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mycel.console.errors import CommandError

LINE_BYTES_MAX: Final = 16 << 20
_PR_SET_PDEATHSIG: Final = 1
_PARENT: Final = "MYCEL_BENCH_PARENT"
"""Names who started a child, so that the child sees if it was orphaned before it could ask
to be killed."""
Answerer = Callable[..., Awaitable[Any]]


class ChildFailed(CommandError):
    """A process of the measurement ended or answered with an error."""


class Child:
    """The side of the one who calls."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, module: str) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            # Ctrl-C is for the parent, which ends its children in order.
            start_new_session=True,
            env={**os.environ, _PARENT: str(os.getpid())},
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, name: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
            line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            raise ChildFailed(f"a process of the measurement ended with code {code} in {name!r}")
        answer = json.loads(line)
        if "error" in answer:
            raise ChildFailed(f"{name}: {answer['error']}")
        return answer["value"]

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()


async def answer_calls(answerers: Mapping[str, Answerer]) -> None:
    """The side of the child: until its standard input ends."""
    _die_with_parent()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        name, arguments = json.loads(line)
        try:
            answer = {"value": await answerers[name](**arguments)}
        except Exception as error:  # noqa: BLE001 - this edge owns the call, and reports it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(os.environ.get(_PARENT, os.getppid())):
        os._exit(1)
