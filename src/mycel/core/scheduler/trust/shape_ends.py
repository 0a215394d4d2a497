"""How attempts of one shape have ended lately, by worker: what a worker is compared with.

Each worker has the same small room, so that one that ends everything at once does not displace
what the others did. Times run from the assignment to the arrival of the result, by the
scheduler's own clock: a worker cannot lie about them, but by being slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Final

WORKERS_MAX: Final = 16
ENDS_MAX: Final = 32
"""Of each worker."""


class ShapeEnds:
    __slots__ = ("_by_worker", "_counts", "count")

    def __init__(self) -> None:
        self._by_worker: dict[Hashable, deque[float]] = {}
        """Seconds, negative for those that failed; who ended one last is last."""
        self._counts: dict[Hashable, int] = {}
        """All that those have ended since they are here."""
        self.count = 0
        """All that ever ended."""

    def add(self, worker: Hashable, seconds: float, *, failed: bool) -> None:
        self.count += 1
        ends = self._by_worker.pop(worker, None)
        if ends is None:
            if len(self._by_worker) >= WORKERS_MAX:
                oldest = next(iter(self._by_worker))
                del self._by_worker[oldest], self._counts[oldest]
            ends = deque(maxlen=ENDS_MAX)
        seconds = max(_SECONDS_MIN, seconds)
        ends.append(-seconds if failed else seconds)
        self._by_worker[worker] = ends
        self._counts[worker] = self._counts.get(worker, 0) + 1

    def count_of(self, worker: Hashable) -> int:
        """How many ended at this worker, if it is among the last that ended any."""
        return self._counts.get(worker, 0)

    def here(self, worker: Hashable) -> list[float]:
        """How long those took that ended at this worker."""
        return [abs(one) for one in self._by_worker.get(worker, ())]

    def elsewhere(self, worker: Hashable) -> list[float]:
        """The same of all others."""
        return [abs(one) for one in self._others(worker)]

    def failures_here(self, worker: Hashable) -> tuple[int, int]:
        """How many failed at this worker lately, of how many."""
        return _failures(list(self._by_worker.get(worker, ())))

    def failures_elsewhere(self, worker: Hashable) -> tuple[int, int]:
        return _failures(list(self._others(worker)))

    def _others(self, worker: Hashable) -> Iterator[float]:
        others = (ends for other, ends in self._by_worker.items() if other != worker)
        return chain.from_iterable(others)


_SECONDS_MIN: Final = 1e-6


def _failures(ends: list[float]) -> tuple[int, int]:
    return sum(one < 0.0 for one in ends), len(ends)


def percentile(values: list[float], share: float) -> float:
    """The value that this share of them does not exceed; there is at least one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
