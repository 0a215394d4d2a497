"""Who waits, in order: priority, with one step more for each minute, then time.

Everybody grows older at the same pace. So the order of two never changes, and a rank is a number:
when they began to wait, less a minute for each step of priority.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mycel.sim.entities import NS_PER_S, Demand, Task

AGEING_NS: Final = 60 * NS_PER_S


def rank(since_ns: int, priority: int) -> int:
    return since_ns - priority * AGEING_NS


@dataclass(slots=True)
class Want:
    """Room that an origin, perhaps the home itself, waits for."""

    origin: int
    demand: Demand
    count: int


class WantLine:
    """At a home."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Want]] = []
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def first(self) -> Want:
        return self._heap[0][2]

    @property
    def rank(self) -> int:
        """Of the first: the lower one goes first."""
        return self._heap[0][0]

    def add(self, want: Want, now: int, priority: int) -> None:
        self._number += 1
        heapq.heappush(self._heap, (rank(now, priority), self._number, want))

    def pop(self) -> None:
        heapq.heappop(self._heap)

    def withdraw(self, origin: int) -> None:
        self._heap = [entry for entry in self._heap if entry[2].origin != origin]
        heapq.heapify(self._heap)

    def clear(self) -> None:
        self._heap.clear()


class WaitingTasks:
    """At an origin, by shape: an offer of a place is for one shape."""

    def __init__(self) -> None:
        self._heaps: Final[dict[Demand, list[tuple[int, int, Task]]]] = {}
        self._number = 0

    def __bool__(self) -> bool:
        return any(self._heaps.values())

    def count(self, demand: Demand) -> int:
        return len(self._heaps.get(demand, ()))

    def first(self, demand: Demand) -> Task:
        return self._heaps[demand][0][2]

    def add(self, demand: Demand, tasks: Iterable[Task], now: int) -> None:
        heap = self._heaps.setdefault(demand, [])
        for task in tasks:
            self._number += 1
            heapq.heappush(heap, (rank(now, task.job.priority), self._number, task))

    def take(self, demand: Demand, count: int) -> list[Task]:
        heap = self._heaps.get(demand, [])
        return [heapq.heappop(heap)[2] for _ in range(min(count, len(heap)))]

    def demands(self) -> Iterator[Demand]:
        return (demand for demand, heap in self._heaps.items() if heap)

    def take_all(self) -> list[Task]:
        found = [task for heap in self._heaps.values() for *_, task in sorted(heap)]
        self._heaps.clear()
        return found
