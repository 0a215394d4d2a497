"""A central directory with replicas: every server reports to it, every scheduler asks it.

A server reports each start and end to the first replica, which tells the others. A scheduler asks
the replica that its number falls on for places. That replica gives what its copy shows, and counts
what it has given as taken until the server reports. Two replicas can give the same place, and the
server then refuses the second task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from mycel.sim.entities import Demand, Job, Resources, Server, Task
from mycel.sim.ledger import Hold, Ledger
from mycel.sim.policy import Options
from mycel.sim.reference_engine import Engine

from .refusals import RefusalOptions, RefusalPolicy


class DirectoryOptions(RefusalOptions, frozen=True, kw_only=True):
    replicas: Annotated[int, msgspec.Meta(ge=1, le=64)] = 3


class Replica:
    """One copy: what servers reported, less what was given since."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.ledger: Final = Ledger(servers, range(len(servers)))
        self.given: Final[dict[int, dict[int, Hold]]] = {}
        """By server and task."""

    def give(self, task: Task) -> int | None:
        hold = self.ledger.hold(task.demand)
        if hold is None:
            return None
        self.given.setdefault(hold[0], {})[task.index] = hold
        return hold[0]

    def update(self, server: int, reported: Resources, seen: int) -> None:
        """`seen` is the task that the server has started, ended or refused."""
        given = self.given.get(server, {})
        given.pop(seen, None)
        self.ledger.correct(server, reported, [hold[1] for hold in given.values()])


class Directory(RefusalPolicy):
    name = "directory"
    options_type = DirectoryOptions

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, DirectoryOptions), "the engine makes our own options"
        self.replicas: Final = [Replica(self.servers) for _ in range(options.replicas)]
        self._able: Final[dict[Demand, list[int]]] = {}

    def replica_of(self, job: Job) -> int:
        return job.entry % self.engine.schedulers % len(self.replicas)

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        """The replicas are the first schedulers, each on its own machine."""
        there = self.scheduler(self.replica_of(job))
        self.engine.send(self.entry(job), there, self._asked, job, list(tasks), tasks=tasks)

    def _asked(self, job: Job, tasks: list[Task]) -> None:
        number = self.replica_of(job)
        places = [(task, self._find(self.replicas[number], task)) for task in tasks]
        self.engine.send(
            self.scheduler(number), self.entry(job), self._answered, places, tasks=tasks
        )

    def _find(self, replica: Replica, task: Task) -> int:
        """Any server that is large enough, if none has room: the task waits there."""
        server = replica.give(task)
        if server is None:
            if task.demand not in self._able:
                self._able[task.demand] = [
                    one.index for one in self.servers if self.is_able(one.index, task.demand)
                ]
            able = self._able[task.demand]
            up = [one for one in able if one not in replica.ledger.down] or able
            server = up[self.random.below(len(up))]
            self.tries[task.index] = self.tries_max
        return server

    def _answered(self, places: list[tuple[Task, int]]) -> None:
        for task, server in places:
            self.try_server(task, server)

    def refused(self, task: Task, server: int) -> None:
        self.place(task.job, [task])

    # Reports

    def started(self, task: Task, server: int) -> None:
        self._report(server, task)

    def finished(self, task: Task, server: Server) -> None:
        super().finished(task, server)
        self._report(server.index, task)

    def turned_away(self, task: Task, server: int) -> None:
        self._report(server, task)

    def _report(self, server: int, task: Task) -> None:
        now = Resources(self.servers[server].resources.capacity)
        now.copy(self.servers[server].resources)
        self.engine.send(
            server, self.scheduler(0), self._reported, server, now, task.index, is_repeated=True
        )

    def _reported(self, server: int, reported: Resources, seen: int) -> None:
        self.replicas[0].update(server, reported, seen)
        for number in range(1, len(self.replicas)):
            self.engine.send(
                self.scheduler(0),
                self.scheduler(number),
                self.replicas[number].update,
                server,
                reported,
                seen,
                is_repeated=True,
            )

    # Failures

    def failed(self, server: Server, lost: Sequence[Task]) -> None:
        for replica in self.replicas:
            replica.given.pop(server.index, None)
            replica.ledger.correct(server.index, server.resources, [])
            if not server.is_up:
                replica.ledger.down.add(server.index)
        super().failed(server, lost)

    def undelivered(self, source: int, destination: int, tasks: Sequence[Task]) -> None:
        for replica in self.replicas:
            for given in replica.given.values():
                for task in tasks:
                    given.pop(task.index, None)
        super().undelivered(source, destination, tasks)

    def returned(self, server: Server) -> None:
        for replica in self.replicas:
            replica.given.pop(server.index, None)
            replica.ledger.correct(server.index, server.resources, [])
            replica.ledger.down.discard(server.index)
