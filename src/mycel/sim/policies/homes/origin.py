"""The scheduler that accepted a job: whom it sends tasks to and asks for room, and who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mycel.sim.entities import Demand, Job, Task

from .waiting_line import WaitingTasks, Want

if TYPE_CHECKING:
    from .homes_policy import Homes


class Origin:
    def __init__(self, number: int, homes: Homes) -> None:
        self.number: Final = number
        self._homes: Final = homes
        self.waiting: Final = WaitingTasks()
        self._wants_at: Final[set[int]] = set()
        self._unanswered: Final[Counter[int]] = Counter()
        self._asked: Final[dict[tuple[int, Demand], set[int]]] = {}
        """By job and shape: the homes asked so far."""

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        homes, own = self._homes, self._homes.home(self.number)
        for demand, some in _by_demand(tasks).items():
            if homes.quotes is not None and demand.gpus:
                self._asked[job.index, demand] = set()
                homes.quotes.ask(self.number, job, demand, some)
                continue
            rest = some if own is None else own.start(some)
            if rest and own is not None:
                evicted = own.evict_for(demand, job.priority, len(rest))
                self.wait(rest[:evicted])
                rest = rest[evicted:]
            if rest:
                self._asked[job.index, demand] = set()
                self.forward(job, demand, rest)

    def forward(self, job: Job, demand: Demand, rest: list[Task]) -> None:
        beliefs = self._homes.beliefs
        asked = self._asked[job.index, demand]
        targets = beliefs.best(self.number, demand, asked, self._homes.options.shares)
        if not targets:
            self.wait(rest)
            return
        first = 0
        shares = beliefs.shares(self.number, targets, len(rest))
        for target, share in zip(targets, shares, strict=True):
            part = rest[first : first + share]
            first += share
            if part:
                self.request(target, job, demand, part)

    def request(self, target: int, job: Job, demand: Demand, tasks: list[Task]) -> None:
        self._contact(target, job, demand)
        beliefs, homes = self._homes.beliefs, self._homes
        left_milli = beliefs.believed(self.number, target) - len(tasks) * demand.cores_milli
        beliefs.hear(self.number, target, left_milli)
        homes.links.tell(
            self.number,
            target,
            homes.homes[target].requested,
            self.number,
            job,
            demand,
            tasks,
            tasks=tasks,
        )

    def _contact(self, target: int, job: Job, demand: Demand) -> None:
        self._asked[job.index, demand].add(target)
        self._unanswered[target] += 1

    def wait(self, tasks: Sequence[Task]) -> None:
        now = self._homes.engine.now
        for demand, some in _by_demand(tasks).items():
            self.waiting.add(demand, some, now)
            home = self._homes.home(self.number)
            if home is not None and self.number in self._homes.beliefs.able(demand):
                home.add_want(Want(self.number, demand, len(some)), some[0].job.priority)

    def answered(
        self, home: int, job: Job, demand: Demand, rest: list[Task], free_milli: int
    ) -> None:
        self._unanswered[home] -= 1
        self._homes.beliefs.hear(self.number, home, free_milli)
        if rest:
            self._wants_at.add(home)
            own = self._homes.home(self.number)
            rest = rest if own is None else own.start(rest)
        if rest:
            self.wait(rest)
            self._ask_next(job, demand, len(rest))
        self.withdraw_if_done()

    def _ask_next(self, job: Job, demand: Demand, count: int) -> None:
        asked = self._asked[job.index, demand]
        if len(asked) >= self._homes.options.asks:
            return
        for home in self._homes.beliefs.best(self.number, demand, asked, 1):
            self._contact(home, job, demand)
            there = self._homes.homes[home]
            self._homes.links.tell(self.number, home, there.asked, self.number, job, demand, count)

    def ask_again(self) -> None:
        for demand in list(self.waiting.demands()):
            job = self.waiting.first(demand).job
            self._asked[job.index, demand] = set()
            self._ask_next(job, demand, self.waiting.count(demand))

    def offered(
        self,
        home: int,
        job: Job | None,
        demand: Demand,
        places: Sequence[object],
        offer: int,
        short: int,
        free_milli: int,
    ) -> None:
        """The answer to an ask for the job; or, without one, room that has freed."""
        self._homes.beliefs.hear(self.number, home, free_milli)
        if places:
            tasks = self.waiting.take(demand, len(places))
            there = self._homes.homes[home]
            self._homes.links.tell(self.number, home, there.filled, offer, tasks, tasks=tasks)
        if job is not None:
            self._unanswered[home] -= 1
            if short:
                self._wants_at.add(home)
                if waiting := self.waiting.count(demand):
                    self._ask_next(job, demand, min(short, waiting))
        self.withdraw_if_done()

    def withdraw_if_done(self) -> None:
        if self.waiting or any(self._unanswered.values()):
            return  # a task that is out may come back, and then needs its want
        for home in sorted(self._wants_at):
            there = self._homes.homes[home]
            self._homes.links.tell(self.number, home, there.withdrawn, self.number)
        self._wants_at.clear()

    # Failures

    def home_died(self, home: int) -> None:
        self._unanswered.pop(home, None)
        self._wants_at.discard(home)
        self.ask_again()

    def restart(self) -> None:
        """From its journal: what waited is placed anew."""
        self._unanswered.clear()
        self._wants_at.clear()
        by_job: dict[int, list[Task]] = {}
        for task in self.waiting.take_all():
            by_job.setdefault(task.job.index, []).append(task)
        for tasks in by_job.values():
            self.place(tasks[0].job, tasks)


def _by_demand(tasks: Sequence[Task]) -> dict[Demand, list[Task]]:
    found: dict[Demand, list[Task]] = {}
    for task in tasks:
        found.setdefault(task.demand, []).append(task)
    return found
