"""joblib's backend: `with mycel.joblib_backend(): GridSearchCV(…, n_jobs=-1).fit(X, y)`.

scikit-learn hands its work to joblib, and joblib hands batches of calls to a backend. Here each
batch is one call on the swarm.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from joblib import parallel_config
from joblib.parallel import (
    AutoBatchingMixin,
    ParallelBackendBase,
    register_parallel_backend,
)

from mycel.client.client import Client

from .futures import Future
from .options import Options, TaskFunction


class MycelBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        client: Client | None = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._client = Client() if client is None else client
        self._run = TaskFunction(_run_batch, Options(**options))
        self._under_way: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """All cores of the swarm's workers, or as many calls at once as asked for."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        if n_jobs is None:
            return 1
        cores = sum(int(one.capabilities.get("cpu_cores", 1)) for one in self._client.workers())
        return max(cores + 1 + n_jobs, 1)

    def submit(self, func: Any, callback: Callable[[Any], None] | None = None) -> Future[Any]:
        future = self._client.submit(self._run, func)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        for future in list(self._under_way):
            future.cancel()


def _run_batch(batch: Callable[[], Any]) -> Any:
    return batch()


_run_batch.__module__ = "__main__"  # by value: a worker need not have this module


@contextlib.contextmanager
def joblib_backend(
    client: Client | None = None, n_jobs: int = -1, **options: Any
) -> Iterator[None]:
    """Whatever joblib runs meanwhile runs on the swarm; the options are those of `mycel.task`."""
    register()
    with parallel_config("mycel", n_jobs=n_jobs, client=client, **options):
        yield


def register() -> None:
    """So that `joblib.parallel_config("mycel")` knows it."""
    register_parallel_backend("mycel", MycelBackend)
