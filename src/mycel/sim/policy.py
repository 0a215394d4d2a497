"""What a policy is. Each lives in a module of its own in `policies/`.

The engine calls a policy when a job arrives and when a task ends; the policy calls the engine:

    engine.send(source, destination, handler, …)   a message: counted, delayed, then handled
    engine.start(task, server)                     the server must have room
    engine.after(delay_ns, handler, …)             a timer

Places are numbers: servers from 0, then schedulers. A policy may read `engine.servers` only for
the server at which its handler runs, unless it is meant to be omniscient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from .entities import Job, Server, Task

if TYPE_CHECKING:
    from .reference_engine import Engine


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A policy's own settings: the scenario's table `[policy]`. Policies add fields."""


class Policy(ABC):
    name: ClassVar[str]
    options_type: ClassVar[type[Options]] = Options
    jobs_arrive_at: ClassVar[str] = "schedulers"
    """Or "servers": what a job's `entry` counts."""
    starts_gangs: ClassVar[bool] = False
    """Whether it starts all tasks of a gang at once. Others are not given gangs."""
    needs_equal_servers: ClassVar[bool] = False
    """Whether it sends tasks to servers without knowing whether they are large enough."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self.engine: Final = engine
        self.servers: Final = engine.servers
        self.random: Final = engine.random

    @abstractmethod
    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        """The job has arrived, at `self.entry(job)`; or these tasks of it must run again."""

    def finished(self, task: Task, server: Server) -> None:  # noqa: B027 – most need it, not all
        """The task has ended, and its resources are free. Runs at the server."""

    def failed(self, server: Server, lost: Sequence[Task]) -> None:
        """The server has died; its tasks were lost. Runs after the engine's detection time."""
        for task in lost:
            self.place(task.job, [task])

    def returned(self, server: Server) -> None:  # noqa: B027 – empty queues need nothing
        """The server is back, and empty."""

    def scheduler_failed(self, number: int) -> None:  # noqa: B027 – its jobs wait for its return
        """The scheduler has died. Runs after the engine's detection time, at all others."""

    def scheduler_returned(self, number: int) -> None:  # noqa: B027 – the same
        """The scheduler has started again, with its journal."""

    def undelivered(self, source: int, destination: int, tasks: Sequence[Task]) -> None:
        """A message to a dead or cut-off place has timed out; `tasks` were in it."""
        for task in tasks:
            self.place(task.job, [task])

    def entry(self, job: Job) -> int:
        """The place that the job arrives at."""
        if self.jobs_arrive_at == "servers":
            return job.entry % len(self.servers)
        return self.scheduler(job.entry)

    def scheduler(self, number: int) -> int:
        """The place of a scheduler."""
        return len(self.servers) + number % self.engine.schedulers


class QueuePolicy(Policy):
    """For policies under which tasks wait in a queue at the server they were sent to."""

    needs_equal_servers = True

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        self.queues: Final[list[deque[Task]]] = [deque() for _ in self.servers]

    def enqueue(self, task: Task, server: int) -> None:
        self.queues[server].append(task)
        self.drain(server)

    def drain(self, server: int) -> None:
        queue = self.queues[server]
        while queue and self.servers[server].fits(queue[0].demand):
            task = queue.popleft()
            self.engine.start(task, server)
            self.started(task, server)

    def started(self, task: Task, server: int) -> None:
        """The task has left the server's queue. Runs at the server."""

    def load(self, server: int) -> int:
        """Tasks that run or wait there."""
        return len(self.servers[server].running) + len(self.queues[server])

    def finished(self, task: Task, server: Server) -> None:
        self.drain(server.index)

    def failed(self, server: Server, lost: Sequence[Task]) -> None:
        waiting = list(self.queues[server.index])
        self.queues[server.index].clear()
        super().failed(server, [*lost, *waiting])
