"""Dask on this machine: a scheduler, two workers of one thread, no dashboard."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import peer_measures

distributed: Any = importlib.import_module("distributed")


class Dask:
    def __init__(self) -> None:
        self._cluster = distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            host="127.0.0.1",
        )
        self._client = distributed.Client(self._cluster)

    def noop(self, number: int) -> object:
        # Not pure: the same call again shall run again.
        return self._client.submit(peer_measures.expected, number, pure=False).result()

    def noops(self, count: int) -> Sequence[object]:
        futures = self._client.map(peer_measures.expected, range(count), pure=False)
        values: list[object] = self._client.gather(futures)
        return values

    def processes(self, count: int) -> None:
        futures = [self._client.submit(peer_measures.run_true, pure=False) for _ in range(count)]
        assert self._client.gather(futures) == [0] * count

    def close(self) -> None:
        self._client.close()
        self._cluster.close()


if __name__ == "__main__":
    peer = Dask()
    peer_measures.first(peer)
    peer_measures.measure(peer, noops=3_000, latencies=500, processes=1_000, warm_up=100)
    peer.close()
