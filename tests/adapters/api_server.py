"""A fake backend behind a real server on a real socket, on a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from mycel.api import Limits, bind, serve

from .api_access import authenticator
from .api_backend import FakeBackend

Value = TypeVar("Value")


class Served:
    def __init__(self, backend: FakeBackend, port: int, loop: asyncio.AbstractEventLoop) -> None:
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
def served(limits: Limits | None = None) -> Iterator[Served]:
    started: list[Served] = []
    ready = threading.Event()
    stop: list[Callable[[], object]] = []

    async def run() -> None:
        loop, over, backend = asyncio.get_running_loop(), asyncio.Event(), FakeBackend()
        bound = bind("127.0.0.1", 0)
        server = await serve(backend, authenticator(), bound, limits, grace_seconds=1)
        started.append(Served(backend, server.port, loop))
        stop.append(lambda: loop.call_soon_threadsafe(over.set))
        ready.set()
        await over.wait()
        backend.stop()
        await server.stop()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(10), "the server did not start"
        yield started[0]
    finally:
        for one in stop:
            one()
        thread.join()
