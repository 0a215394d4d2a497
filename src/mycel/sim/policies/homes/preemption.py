"""Which tasks of lower priority to stop, so that a waiting one has room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mycel.sim.entities import Demand, Resources, Server, Task
from mycel.sim.ledger import Hold, Ledger


class Preemption:
    def __init__(self, servers: list[Server], holds: Mapping[int, Hold]) -> None:
        self._servers: Final = servers
        self._holds: Final = holds
        self._leaving: Final[dict[int, int]] = {}
        """Tasks that are being stopped, with the attempt."""

    def victims(self, ledger: Ledger, demand: Demand, priority: int, count: int) -> list[Task]:
        """Lowest priority first, then the youngest. One victim has to make room for one task."""
        candidates = [
            task
            for member in ledger.members
            if member not in ledger.down
            for task in self._servers[member].running.values()
            if task.job.priority < priority
            and task.index in self._holds
            and self._leaving.get(task.index) != task.attempt
        ]
        candidates.sort(key=lambda task: (task.job.priority, -task.start_ns, task.index))
        found: list[Task] = []
        for task in candidates:
            if len(found) == count:
                break
            hold = self._holds[task.index]
            if self._makes_room(ledger.books[hold.server], hold, demand):
                self._leaving[task.index] = task.attempt
                found.append(task)
        return found

    def _makes_room(self, book: Resources, hold: Hold, demand: Demand) -> bool:
        book.give(hold.demand, hold.gpus)
        fits = book.fits(demand)
        book.take(hold.demand, hold.gpus)
        return fits
