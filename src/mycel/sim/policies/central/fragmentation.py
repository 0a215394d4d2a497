"""Fragmentation of GPUs, after Weng et al., "Beware of Fragmentation", USENIX ATC 2023.

A server's free GPU share is a fragment for a kind of task that cannot use it: all of it if the task
does not fit there or needs no GPU, else what is left on GPUs with less than the task needs. The
kinds are those of the workload, weighted by how often they occur.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from mycel.sim.entities import Demand, Resources
from mycel.sim.ledger import Ledger

KINDS_MAX: Final = 100


class Placement(NamedTuple):
    growth: float
    server: int
    gpus: tuple[int, ...]


class Fragmentation:
    def __init__(self, counted: Counter[Demand]) -> None:
        common = counted.most_common(KINDS_MAX)
        total = sum(count for _, count in common)
        self.kinds: Final = [(demand, count / total) for demand, count in common]
        self._growth: Final[dict[tuple[int, Demand], tuple[float, tuple[int, ...]]]] = {}
        self._version: Final[dict[int, tuple[object, ...]]] = {}

    def best(self, ledger: Ledger, demand: Demand) -> Placement | None:
        """The server with room on which fragmentation grows least."""
        best: Placement | None = None
        for server, book in ledger.books.items():
            if server not in ledger.down and book.fits(demand):
                growth, gpus = self._least_growth(server, book, demand)
                if best is None or growth < best.growth:
                    best = Placement(growth, server, gpus)
        return best

    def _least_growth(
        self, server: int, book: Resources, demand: Demand
    ) -> tuple[float, tuple[int, ...]]:
        """Kept until the server's state changes."""
        state = (book.cores_milli, book.memory_mib, *book.gpus_milli)
        if self._version.get(server) != state:
            self._version[server] = state
            for kind in [key for key in self._growth if key[0] == server]:
                del self._growth[kind]
        key = (server, demand)
        if key not in self._growth:
            before = fragmentation(book, self.kinds)
            self._growth[key] = min(
                (_after(book, demand, gpus, self.kinds) - before, gpus)
                for gpus in _gpu_choices(book, demand)
            )
        return self._growth[key]


def fragmentation(book: Resources, kinds: list[tuple[Demand, float]]) -> float:
    """Thousandths of GPUs that a task of the workload cannot use, on average."""
    free = sum(book.gpus_milli)
    total = 0.0
    for demand, weight in kinds:
        if not demand.gpus or not book.fits(demand):
            total += weight * free
        else:
            total += weight * sum(gpu for gpu in book.gpus_milli if gpu < demand.gpu_milli)
    return total


def _after(
    book: Resources, demand: Demand, gpus: tuple[int, ...], kinds: list[tuple[Demand, float]]
) -> float:
    book.take(demand, gpus)
    try:
        return fragmentation(book, kinds)
    finally:
        book.give(demand, gpus)


def _gpu_choices(book: Resources, demand: Demand) -> list[tuple[int, ...]]:
    """One GPU of each amount free for a shared one; whole GPUs are all alike."""
    if demand.gpus != 1 or demand.gpu_milli == 1000:
        return [book.best_gpus(demand)]
    first_with = {
        free: gpu
        for gpu, free in reversed(list(enumerate(book.gpus_milli)))
        if free >= demand.gpu_milli
    }
    return [(gpu,) for gpu in sorted(first_with.values())]
