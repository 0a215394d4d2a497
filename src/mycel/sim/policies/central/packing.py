"""Central FIFO with a choice among the servers that fit: best fit, packing, dot product, random.

Each scores every server with room and takes the lowest score; ties go to the lower number.
Resources count as shares of the largest server, so that cores and memory compare.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from mycel.sim.entities import Demand, Resources, Task
from mycel.sim.ledger import Hold
from mycel.sim.policy import Options
from mycel.sim.reference_engine import Engine

from .central_queue import CentralFifo


class ScoredFit(CentralFifo):
    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        capacities = [server.resources.capacity for server in engine.servers]
        self.largest: Final = (
            max(one.cores_milli for one in capacities) or 1,
            max(one.memory_mib for one in capacities) or 1,
            max(one.gpus for one in capacities) * 1000 or 1,
        )

    @abstractmethod
    def score(self, book: Resources, demand: Demand) -> float:
        """The lowest is taken."""

    def choose(self, task: Task) -> Hold | None:
        ledger = self.ledger
        if ledger.cores_free_milli < task.demand.cores_milli:
            return None
        best: tuple[float, int] | None = None
        for server, book in ledger.books.items():
            if server not in ledger.down and book.fits(task.demand):
                scored = (self.score(book, task.demand), server)
                if best is None or scored < best:
                    best = scored
        if best is None:
            return None
        return ledger.book(best[1], task.demand, ledger.books[best[1]].best_gpus(task.demand))

    def free_shares(self, book: Resources) -> tuple[float, float, float]:
        return (
            book.cores_milli / self.largest[0],
            book.memory_mib / self.largest[1],
            sum(book.gpus_milli) / self.largest[2],
        )

    def demand_shares(self, demand: Demand) -> tuple[float, float, float]:
        return (
            demand.cores_milli / self.largest[0],
            demand.memory_mib / self.largest[1],
            demand.gpus * demand.gpu_milli / self.largest[2],
        )


class BestFit(ScoredFit):
    """The server that is left with least, over all resources."""

    name = "best-fit"

    def score(self, book: Resources, demand: Demand) -> float:
        return sum(self.free_shares(book)) - sum(self.demand_shares(demand))


class Packing(ScoredFit):
    """The server with the largest share of its own resources in use."""

    name = "packing"

    def score(self, book: Resources, demand: Demand) -> float:
        capacity = book.capacity
        used = 1 - book.cores_milli / (capacity.cores_milli or 1)
        if capacity.gpus:
            used += 1 - sum(book.gpus_milli) / (1000 * capacity.gpus)
        return -used


class DotProduct(ScoredFit):
    """Tetris: where the demand points the same way as what is free, the product is largest."""

    name = "dot-product"

    def score(self, book: Resources, demand: Demand) -> float:
        pairs = zip(self.free_shares(book), self.demand_shares(demand), strict=True)
        return -sum(free * needed for free, needed in pairs)


class RandomFit(ScoredFit):
    name = "random-fit"

    def score(self, book: Resources, demand: Demand) -> float:
        return self.random.next()
