"""A scheduler in memory behind a real server on a real socket, on a loop of its own."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from mycel.api import Limits, bind, serve

from .api_access import authenticator
from .api_scheduler import ApiScheduler

Value = TypeVar("Value")


class Served:
    def __init__(self, backend: ApiScheduler, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.backend = backend
        self.port = port
        self.api = f"http://127.0.0.1:{port}"
        self._loop = loop

    def call(self, do: Callable[[], Value]) -> Value:
        """On the backend's own thread, as everything that touches it."""

        async def run() -> Value:
            return do()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()


@contextmanager
def served(limits: Limits | None = None, **worker: Any) -> Iterator[Served]:
    """`worker`: what `ApiScheduler` is told of its worker."""
    with tempfile.TemporaryDirectory(prefix="mycel-api-") as folder:
        yield from _served(Path(folder), limits, worker)


def _served(folder: Path, limits: Limits | None, worker: dict[str, Any]) -> Iterator[Served]:
    started: list[Served] = []
    ready = threading.Event()
    stop: list[Callable[[], object]] = []

    async def run() -> None:
        loop, over, backend = (
            asyncio.get_running_loop(),
            asyncio.Event(),
            ApiScheduler(folder, **worker),
        )
        bound = bind("127.0.0.1", 0)
        server = await serve(backend, authenticator(), bound, limits, grace_seconds=1)
        started.append(Served(backend, server.port, loop))
        stop.append(lambda: loop.call_soon_threadsafe(over.set))
        ready.set()
        await over.wait()
        backend.stop()
        await server.stop()
        backend.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(10), "the server did not start"
        yield started[0]
    finally:
        for one in stop:
            one()
        thread.join()
