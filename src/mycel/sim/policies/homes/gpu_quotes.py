"""Work with GPUs asks homes what it would cost them in fragmentation, and goes to the best.

The questions bind nobody. Each home answers with the growth of fragmentation on the best of its
servers; the own home is asked without a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mycel.sim.entities import Demand, Job, Task

if TYPE_CHECKING:
    from .homes_policy import Homes


@dataclass(slots=True, eq=False)
class Round:
    """One shape of one job."""

    origin: int
    job: Job
    demand: Demand
    tasks: list[Task]
    open: set[int]
    growth: dict[int, float] = field(default_factory=dict)
    """Of the homes that have room."""


class GpuQuotes:
    def __init__(self, homes: Homes, offers: int) -> None:
        self._homes: Final = homes
        self._offers: Final = offers
        self._rounds: Final[list[Round]] = []

    def ask(self, origin: int, job: Job, demand: Demand, tasks: list[Task]) -> None:
        homes = self._homes
        own = homes.home(origin)
        count = self._offers - (own is not None)
        asked = homes.beliefs.best(origin, demand, frozenset(), count)
        current = Round(origin, job, demand, tasks, set(asked))
        self._rounds.append(current)
        if own is not None and (growth := own.growth(demand)) is not None:
            current.growth[origin] = growth
        for home in asked:
            homes.links.tell(origin, home, self._asked, home, current)
        self._end_if_answered(current)

    def _asked(self, home: int, current: Round) -> None:
        growth = self._homes.homes[home].growth(current.demand)
        self._homes.links.tell(home, current.origin, self._answered, home, current, growth)

    def _answered(self, home: int, current: Round, growth: float | None) -> None:
        if home not in current.open:
            return  # it was believed dead
        current.open.discard(home)
        if growth is not None:
            current.growth[home] = growth
        self._end_if_answered(current)

    def _end_if_answered(self, current: Round) -> None:
        if current.open:
            return
        self._rounds.remove(current)
        origin = self._homes.origins[current.origin]
        if not current.growth:
            origin.forward(current.job, current.demand, current.tasks)
            return
        best = min(current.growth, key=lambda home: (current.growth[home], home))
        if best != current.origin:
            origin.request(best, current.job, current.demand, current.tasks)
        elif rest := self._homes.homes[best].start(current.tasks):
            origin.forward(current.job, current.demand, rest)

    def lose(self, scheduler: int) -> list[Task]:
        """The scheduler has died: nobody waits for its answers. Returns the tasks it asked for."""
        lost: list[Task] = []
        for current in list(self._rounds):
            if current.origin == scheduler:
                lost += current.tasks
                self._rounds.remove(current)
            elif scheduler in current.open:
                current.open.discard(scheduler)
                self._end_if_answered(current)
        return lost
