"""Sparrow: d × m reservations for m tasks; a server with room asks for a task (late binding).

Ousterhout et al., SOSP 2013. A reservation waits in the server's queue. When the server has room
it holds that room and asks the job's scheduler, which answers with a task or, if none is left,
with nothing. Servers are drawn with replacement. All tasks of a job have one shape.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from mycel.sim.entities import Demand, Job, Resources, Server, Task
from mycel.sim.ledger import Hold, Ledger
from mycel.sim.policy import Options, Policy
from mycel.sim.reference_engine import Engine


class SparrowOptions(Options, frozen=True, kw_only=True):
    probes: Annotated[int, msgspec.Meta(ge=1, le=100)] = 2
    """Reservations for each task."""


class Sparrow(Policy):
    name = "sparrow"
    options_type = SparrowOptions

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, SparrowOptions), "the engine makes our own options"
        self._able: Final[dict[Demand, list[int]]] = {}
        self.probes: Final = options.probes
        self.queues: Final[list[deque[Job]]] = [deque() for _ in self.servers]
        self.ledgers: Final = [Ledger(engine.servers, [i]) for i in range(len(engine.servers))]
        self.asking: Final[list[deque[Hold]]] = [deque() for _ in self.servers]
        """Room held while a scheduler is asked for a task, the longest first."""
        self.unbound: Final[dict[int, deque[Task]]] = {}
        self.holds: Final[dict[int, Hold]] = {}

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        self.unbound.setdefault(job.index, deque()).extend(tasks)
        for demand, count in Counter(task.demand for task in tasks).items():
            for _ in range(self.probes * count):
                self._probe(job, demand)

    def _probe(self, job: Job, demand: Demand) -> None:
        """Only servers that are large enough: the paper's constraints of a job."""
        if demand not in self._able:
            self._able[demand] = [
                server.index
                for server in self.servers
                if Resources(server.resources.capacity).fits(demand)
            ]
        able = self._able[demand]
        server = able[self.random.below(len(able))]
        self.engine.send(self.entry(job), server, self._reserve, job, server)

    def _reserve(self, job: Job, server: int) -> None:
        self.queues[server].append(job)
        self._ask(server)

    def _ask(self, server: int) -> None:
        queue = self.queues[server]
        while queue:
            hold = self.ledgers[server].hold(queue[0].tasks[0].demand)
            if hold is None:
                return
            job = queue.popleft()
            self.asking[server].append(hold)
            self.engine.send(server, self.entry(job), self._bind, job, server, hold)

    def _bind(self, job: Job, server: int, hold: Hold) -> None:
        self.asking[server].popleft()
        unbound = self.unbound[job.index]
        task = unbound.popleft() if unbound else None
        carried = [] if task is None else [task]
        self.engine.send(self.entry(job), server, self._start, task, server, hold, tasks=carried)

    def _start(self, task: Task | None, server: int, hold: Hold) -> None:
        if task is None:
            self.ledgers[server].release(hold)
            self._ask(server)
        else:
            self.holds[task.index] = hold
            self.engine.start(task, server)

    def finished(self, task: Task, server: Server) -> None:
        self.ledgers[server.index].release(self.holds.pop(task.index))
        self._ask(server.index)

    def failed(self, server: Server, lost: Sequence[Task]) -> None:
        self.queues[server.index].clear()
        for task in lost:
            self.holds.pop(task.index)
        for task in lost:
            self.place(task.job, [task])
        # Reservations that died with it are not missed by jobs that have others.
        self._probe_again()

    def returned(self, server: Server) -> None:
        self.asking[server.index].clear()
        self.ledgers[server.index] = Ledger(self.servers, [server.index])

    def undelivered(self, source: int, destination: int, tasks: Sequence[Task]) -> None:
        super().undelivered(source, destination, tasks)
        if destination >= len(self.servers) and self.asking[source]:
            # The scheduler is dead. Its other reservations here are asked about and dropped.
            self.ledgers[source].release(self.asking[source].popleft())
            self._ask(source)
        elif not tasks:
            self._probe_again()

    def scheduler_returned(self, number: int) -> None:
        """Its reservations were dropped meanwhile: it makes new ones for what has no task yet."""
        place = self.scheduler(number)
        for unbound in list(self.unbound.values()):
            if unbound and self.entry(unbound[0].job) == place:
                tasks = list(unbound)
                unbound.clear()
                self.place(tasks[0].job, tasks)

    def _probe_again(self) -> None:
        for unbound in self.unbound.values():
            if unbound:
                self._probe(unbound[0].job, unbound[0].demand)
