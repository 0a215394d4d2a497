"""Ray on this machine: two workers of one core, no dashboard."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import peer_measures

ray: Any = importlib.import_module("ray")


class Ray:
    def __init__(self) -> None:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )
        self._noop = ray.remote(num_cpus=1)(peer_measures.expected)
        self._true = ray.remote(num_cpus=1)(peer_measures.run_true)

    def noop(self, number: int) -> object:
        return ray.get(self._noop.remote(number))

    def noops(self, count: int) -> Sequence[object]:
        values: list[object] = ray.get([self._noop.remote(number) for number in range(count)])
        return values

    def processes(self, count: int) -> None:
        codes = ray.get([self._true.remote() for _ in range(count)])
        assert codes == [0] * count


if __name__ == "__main__":
    peer = Ray()
    peer_measures.first(peer)
    peer_measures.measure(peer, noops=10_000, latencies=1_000, processes=2_000, warm_up=200)
    ray.shutdown()
