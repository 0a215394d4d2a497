"""Homes put together: one origin for each scheduler, one home for some of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from mycel.sim.entities import NS_PER_MS, NS_PER_S, Job, Resources, Server, Task
from mycel.sim.errors import ScenarioError
from mycel.sim.ledger import Hold, Ledger
from mycel.sim.policies.central.fragmentation import Fragmentation
from mycel.sim.policy import Options, Policy
from mycel.sim.reference_engine import Engine

from .beliefs import Beliefs
from .gangs import GangOrigins
from .gpu_quotes import GpuQuotes
from .home import Home
from .homes_options import HomesOptions, home_among, home_count, home_of
from .origin import Origin
from .preemption import Preemption
from .scheduler_links import SchedulerLinks

ASK_AGAIN_NS: Final = 1000 * NS_PER_MS
"""After a partition, messages arrive out of order and a want can be lost: ask again."""


class Homes(Policy):
    name = "homes"
    options_type = HomesOptions
    starts_gangs = True

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, HomesOptions), "the engine makes our own options"
        self.options: Final = options
        slots = sum(server.resources.capacity.cores_milli for server in self.servers) // 1000
        count = home_count(options, engine.schedulers, slots)
        members: list[list[int]] = [[] for _ in range(count)]
        for server in range(len(self.servers)):
            members[home_of(server, count)].append(server)
        self.home_by_server: Final = {
            server: home for home, some in enumerate(members) for server in some
        }
        self.ledgers: Final = [Ledger(self.servers, some) for some in members]
        self.holds: Final[dict[int, Hold]] = {}
        """By task: where it runs, or is on its way to."""
        self.preemption: Final = Preemption(self.servers, self.holds)
        self.links: Final = SchedulerLinks(engine, options, count)
        self.beliefs: Final = Beliefs(engine, options, self.ledgers, self.links)
        kinds = Counter(task.demand for job in engine.jobs for task in job.tasks)
        if options.fetch_ahead and len(kinds) > 1:
            raise ScenarioError("homes fetch ahead tasks of one shape only: fetch_ahead = false")
        has_gpus = options.gpu_offers and any(demand.gpus for demand in kinds)
        self.fragmentation: Final = Fragmentation(kinds) if has_gpus else None
        self.quotes: Final = GpuQuotes(self, options.gpu_offers) if has_gpus else None
        self.gang_origins: Final = GangOrigins(self)
        self.homes: Final = [Home(n, ledger, self) for n, ledger in enumerate(self.ledgers)]
        self.origins: Final = [Origin(n, self) for n in range(engine.schedulers)]
        self._ahead_at: Final[dict[int, deque[Task]]] = {}
        """By server: tasks that wait there for others to end."""
        self._parked: Final[dict[int, list[tuple[Job, list[Task]]]]] = {}
        """By origin that is dead: what it has to place when it is back."""
        if engine.has_faults:
            engine.every(ASK_AGAIN_NS, self._ask_again)

    def home(self, scheduler: int) -> Home | None:
        """The home that the scheduler is, if it is one."""
        return self.homes[scheduler] if scheduler < len(self.homes) else None

    def ledger_of(self, server: int) -> Ledger:
        return self.ledgers[self.home_by_server[server]]

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        origin = job.entry % self.engine.schedulers
        if not self.engine.is_place_up(self.scheduler(origin)):
            self._parked.setdefault(origin, []).append((job, list(tasks)))
        elif job.is_gang and len(tasks) > 1:
            self.gang_origins.place(origin, list(tasks))
        else:
            self.origins[origin].place(job, tasks)

    def _ask_again(self) -> None:
        for origin in self.origins:
            if self.engine.is_place_up(self.scheduler(origin.number)):
                origin.ask_again()

    # At the servers

    def run(self, task: Task, server: int, gpus: tuple[int, ...]) -> None:
        """Tasks that were sent ahead may overtake each other, so all of them queue."""
        if self.options.fetch_ahead:
            self._ahead_at.setdefault(server, deque()).append(task)
            self._drain(server)
        else:
            self.engine.start(task, server, gpus)

    def _drain(self, server: int) -> None:
        ahead = self._ahead_at.get(server)
        while ahead and self.servers[server].fits(ahead[0].demand):
            self.engine.start(ahead.popleft(), server)

    def evict(self, task: Task, attempt: int) -> None:
        if task.is_running and task.attempt == attempt:
            server = task.server
            self.engine.preempt(task)
            self._tell_home(server, task, is_preempted=True)

    def finished(self, task: Task, server: Server) -> None:
        self._drain(server.index)
        self._tell_home(server.index, task)

    def _tell_home(self, server: int, task: Task, *, is_preempted: bool = False) -> None:
        there = self.scheduler(self.home_by_server[server])
        given = (server, task, is_preempted)
        self.engine.send(server, there, self._ended, *given, is_completion=True)

    def _ended(self, server: int, task: Task, is_preempted: bool) -> None:
        home = self.homes[self.home_by_server[server]]
        home.ended(task, server)
        if is_preempted:
            origin = task.job.entry % self.engine.schedulers
            self.links.tell(home.number, origin, self.place, task.job, [task], tasks=[task])

    # Failures of servers

    def failed(self, server: Server, lost: Sequence[Task]) -> None:
        home = self.homes[self.home_by_server[server.index]]
        for task in lost:
            home.forget(task, server.index)
        # What was sent ahead and has not arrived comes back as undelivered.
        waiting = self._ahead_at.pop(server.index, ())
        for task in waiting:
            home.forget(task, server.index)
        if not server.is_up:
            home.ledger.down.add(server.index)
        super().failed(server, [*lost, *waiting])

    def returned(self, server: Server) -> None:
        home = self.homes[self.home_by_server[server.index]]
        home.ledger.down.discard(server.index)
        home.serve()

    def undelivered(self, source: int, destination: int, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if destination < len(self.servers):
                self.homes[self.home_by_server[destination]].forget(task, destination)
        super().undelivered(source, destination, tasks)

    # Failures of schedulers

    def scheduler_failed(self, number: int) -> None:
        """The others believe it dead. Its servers take the next home; what runs goes on."""
        self.beliefs.dead.add(number)
        lost = [task for letter in self.links.lose(number) for task in letter.tasks]
        if self.quotes is not None:
            lost += self.quotes.lose(number)
        if number < len(self.homes):
            self._move_all(number)
        for home in self.homes:
            if home.number != number:
                home.origin_died(number)
        self.gang_origins.home_died(number)
        for origin in self.origins:
            if origin.number != number:
                origin.home_died(number)
        for task in lost:
            self.place(task.job, [task])

    def _move_all(self, number: int) -> None:
        alive = [home.number for home in self.homes if home.is_alive]
        if not alive:
            return
        dead = self.homes[number]
        moved = set(dead.ledger.members)
        dead.die()
        for task in [task for task, hold in self.holds.items() if hold.server in moved]:
            del self.holds[task]
        for server in sorted(moved):
            dead.give_away(server)
            self._list_to(server, home_among(server, alive))

    def _list_to(self, server: int, home: int) -> None:
        """The server lists to its new home what it runs and what it has waiting."""
        self.home_by_server[server] = home
        self.beliefs.members_changed()
        place = self.servers[server]
        for task in place.running.values():
            self.holds[task.index] = Hold(server, task.demand, task.gpus)
        book = Resources(place.resources.capacity)
        book.copy(place.resources)
        if not place.is_up:
            self.ledgers[home].down.add(server)
        self.homes[home].take_over(server, book, list(self._ahead_at.get(server, ())))

    def scheduler_returned(self, number: int) -> None:
        self.beliefs.dead.discard(number)
        self.origins[number].restart()
        self.gang_origins.restart(number)
        for job, tasks in self._parked.pop(number, []):
            self.place(job, tasks)
        if number < len(self.homes):
            self.engine.after(round(self.options.return_s * NS_PER_S), self._come_back, number)

    def _come_back(self, number: int) -> None:
        """Servers go back to their first home, if it is still there."""
        alive = [home.number for home in self.homes if home.is_alive]
        for server, before in list(self.home_by_server.items()):
            if before == number or home_among(server, alive) != number:
                continue
            if server in self.ledgers[before].down:
                self.ledgers[number].down.add(server)
            self.home_by_server[server] = number
            self.beliefs.members_changed()
            self.homes[number].take_over(server, *self.homes[before].give_away(server))
        self.gang_origins.announce_all(number)
