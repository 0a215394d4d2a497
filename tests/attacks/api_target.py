"""An API to attack, in a process of its own, so that its memory and sockets can be measured.

    python -m tests.attacks.api_target '{"limits": {…}, "tls": ["cert", "key"]}'

It prints its port and a token, then whatever is told of its certificate, and ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from mycel.api import Limits, bind, serve
from mycel.api.http.certificates import Certificate
from tests.adapters.api_access import TOKEN, authenticator
from tests.adapters.api_scheduler import ApiScheduler


async def _serve(order: dict[str, Any]) -> None:
    certificate = None
    if order.get("tls"):
        path, key = order["tls"]
        certificate = Certificate(path, key, lambda text: print(text, flush=True))
    limits = msgspec.convert(order.get("limits", {}), Limits)
    bound = bind("127.0.0.1", 0)
    folder = tempfile.TemporaryDirectory(prefix="mycel-api-")
    backend = ApiScheduler(Path(folder.name))
    server = await serve(
        backend, authenticator(), bound, limits, grace_seconds=1, certificate=certificate
    )
    print(server.port, TOKEN, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    backend.stop()
    await server.stop()
    backend.close()
    folder.cleanup()


class Target:
    def __init__(self, process: subprocess.Popen[str], port: str, token: str) -> None:
        self.process = process
        self.port = int(port)
        self.authorization = f"Authorization: Bearer {token}\r\n".encode()

    @property
    def memory(self) -> int:
        """Bytes that it has had resident at the most."""
        return self._status("VmHWM") << 10

    @property
    def sockets(self) -> int:
        count = 0
        for one in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                count += str(one.readlink()).startswith("socket:")
        return count

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise AssertionError(name)


@contextmanager
def target(tls: tuple[Path, Path] | None = None, **limits: float) -> Iterator[Target]:
    order = {"limits": limits, "tls": [str(one) for one in tls or ()]}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.attacks.api_target", json.dumps(order)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Target(process, *process.stdout.readline().split())
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.stdout.close()


if __name__ == "__main__":
    uvloop.run(_serve(json.loads(sys.argv[1])))
