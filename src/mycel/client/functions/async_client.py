"""`mycel.AsyncClient`: the client for programs with an event loop.

There is one implementation, that of `Client`. What blocks there runs in a thread here; what is an
iterator there is an asynchronous one here; and futures can be awaited anyway.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

from mycel.client.client import Client, Function

from .futures import Future

THREADS_MAX: Final = 64
"""Each request that is under way takes one, and so does each stream."""
ITERATORS: Final = frozenset({"events", "follow_logs", "jobs", "results", "tasks"})
_END: Final = object()


class AsyncClient:
    """Every method of `Client`, by the same name: `await client.run(…)`,
    `async for value in client.map(…)`, `await client.submit(…)`."""

    def __init__(
        self, api: str | Client | None = None, token: str | None = None, **options: Any
    ) -> None:
        self._client = api if isinstance(api, Client) else Client(api, token, **options)
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="mycel-async")

    @classmethod
    def from_home(cls, *given: Any, **named: Any) -> Self:
        return cls(Client.from_home(*given, **named))

    @property
    def api(self) -> str:
        return self._client.api

    def submit(self, function: Function, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """At once, as in `Client`: only arguments above 1 MB take time, since they are sent now."""
        return self._client.submit(function, *args, **kwargs)

    def map(self, function: Function, /, *iterables: Iterable[Any]) -> AsyncValues:
        return AsyncValues(self._threads, functools.partial(self._client.map, function, *iterables))

    async def run(self, function: Function, /, *args: Any, **kwargs: Any) -> Any:
        """Cancelled, it cancels the call."""
        future = await self._in_thread(self._client.submit, function, *args, **kwargs)
        try:
            return await future
        except asyncio.CancelledError:
            self._threads.submit(future.cancel)
            raise

    async def aclose(self) -> None:
        await self._in_thread(self._client.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name.startswith("_") or not callable(method):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in ITERATORS:
            return lambda *given, **named: AsyncValues(
                self._threads, functools.partial(method, *given, **named)
            )
        return functools.partial(self._in_thread, method)

    async def _in_thread(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(call, *given, **named))


class AsyncValues(AsyncIterator[Any]):
    """What a blocking iterator yields. Close it, or read it to its end."""

    def __init__(self, threads: ThreadPoolExecutor, make: Callable[[], Iterator[Any]]) -> None:
        self._threads = threads
        self._values = make()

    async def __anext__(self) -> Any:
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(self._threads, next, self._values, _END)
        if value is _END:
            raise StopAsyncIteration
        return value

    async def aclose(self) -> None:
        close = getattr(self._values, "close", None)
        if close is not None:
            await asyncio.get_running_loop().run_in_executor(self._threads, close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
