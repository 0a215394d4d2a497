"""`mycel.Executor`: the standard library's executor, whose workers are a swarm's."""

from __future__ import annotations

import concurrent.futures
import threading
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from mycel.client.client import Client

from .futures import Future
from .options import Options, TaskFunction

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class Executor(concurrent.futures.Executor):
    """Calls go through the client given, else through `Client()`. The options are
    those of `mycel.task`, and hold for functions that have none of their own."""

    def __init__(self, client: Client | None = None, **options: Any) -> None:
        self._is_own = client is None
        self._options = Options(**options)
        self._client = Client() if client is None else client
        self._lock = threading.Lock()
        self._is_shut_down = False
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()

    def submit(
        self,
        fn: Callable[Parameters, Returned],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Future[Returned]:
        if not isinstance(fn, TaskFunction):
            fn = TaskFunction(fn, self._options)
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            future = self._client.submit(fn, *args, **kwargs)
            self._futures.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. Without `wait` those that are under way go on."""
        with self._lock:
            self._is_shut_down = True
            futures = list(self._futures)
        if cancel_futures:
            for future in futures:
                future.cancel()
        if wait:
            concurrent.futures.wait(futures)
        if self._is_own and (wait or not futures):
            self._client.close()
