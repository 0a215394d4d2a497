"""Hawk and Eagle: long jobs are placed centrally, short ones by probes; idle servers steal.

Hawk (Delgado et al., USENIX ATC 2015) keeps a part of the servers free of long tasks, and lets an
idle server steal short tasks that wait behind long ones. Eagle (SoCC 2016) tells the schedulers of
short jobs which servers hold long tasks, and they avoid them. Left out of Eagle here: sticky batch
probing. A job is long if its mean estimate is above the cut-off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from mycel.sim.entities import NS_PER_S, Job, Server, Task
from mycel.sim.policy import Options
from mycel.sim.reference_engine import Engine

from .work_stealing import WorkStealing, WorkStealingOptions


class HawkOptions(WorkStealingOptions, frozen=True, kw_only=True):
    cutoff_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 10.0
    short_share: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """The share of the servers that long tasks never use."""
    probes: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 2


class Hawk(WorkStealing):
    name = "hawk"
    options_type = HawkOptions

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, HawkOptions), "the engine makes our own options"
        self.cutoff_ns: Final = round(options.cutoff_s * NS_PER_S)
        self.probes: Final = options.probes
        self.long_servers: Final = max(1, round(len(self.servers) * (1 - options.short_share)))
        self.backlog_ns: Final = [0] * len(self.servers)
        """What the central scheduler has given each server and not heard the end of."""
        self.long_tasks: Final = [0] * len(self.servers)

    def is_long(self, job: Job) -> bool:
        return sum(task.estimate_ns for task in job.tasks) > self.cutoff_ns * len(job.tasks)

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if self.is_long(job):
                self._place_long(task)
            else:
                self._place_short(task)

    def _place_long(self, task: Task) -> None:
        server = min(range(self.long_servers), key=self.backlog_ns.__getitem__)
        self.backlog_ns[server] += task.estimate_ns
        self.long_tasks[server] += 1
        self.engine.send(self.scheduler(0), server, self.enqueue, task, server, tasks=[task])

    def candidates(self) -> list[int]:
        return [self.random.below(len(self.servers)) for _ in range(self.probes)]

    def _place_short(self, task: Task) -> None:
        drawn = self.candidates()
        self.engine.counters.messages += 2 * len(drawn)
        here, network = self.entry(task.job), self.engine.network
        delay = max((network.delay_ns(here, server) or 0) for server in drawn)
        self.engine.after(delay, self._read, task, drawn, delay)

    def _read(self, task: Task, drawn: list[int], delay: int) -> None:
        best = min(drawn, key=self.load)
        self.engine.after(delay, self._send, task, best)

    def _send(self, task: Task, server: int) -> None:
        self.engine.send(self.entry(task.job), server, self.enqueue, task, server, tasks=[task])

    def take(self, victim: int) -> list[Task]:
        """Short tasks only: the first group that waits behind a long one."""
        if not self.long_tasks[victim]:
            return []
        queue = self.queues[victim]
        stolen = [task for task in queue if not self.is_long(task.job)]
        for task in stolen:
            queue.remove(task)
        return stolen

    def finished(self, task: Task, server: Server) -> None:
        if self.is_long(task.job):
            self.long_tasks[server.index] = max(0, self.long_tasks[server.index] - 1)
            self.engine.send(
                server.index, self.scheduler(0), self._heard_end, task, server, is_completion=True
            )
        super().finished(task, server)

    def _heard_end(self, task: Task, server: Server) -> None:
        left = self.backlog_ns[server.index] - task.estimate_ns
        self.backlog_ns[server.index] = max(0, left)  # a failure may have cleared it

    def failed(self, server: Server, lost: Sequence[Task]) -> None:
        self.backlog_ns[server.index] = self.long_tasks[server.index] = 0
        super().failed(server, lost)


class Eagle(Hawk):
    name = "eagle"

    def candidates(self) -> list[int]:
        """Drawn again, a few times, while a server is known to hold a long task."""
        found: list[int] = []
        for _ in range(self.probes):
            server = self.random.below(len(self.servers))
            for _ in range(3):
                if not self.long_tasks[server]:
                    break
                server = self.random.below(len(self.servers))
            else:
                short = len(self.servers) - self.long_servers
                if short:  # the part that long tasks never use
                    server = self.long_servers + self.random.below(short)
            found.append(server)
        return found
