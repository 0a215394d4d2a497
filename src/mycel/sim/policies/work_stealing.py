"""Random queues; a server that runs out of work asks random others for a waiting task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from mycel.sim.entities import Job, Server, Task
from mycel.sim.policy import Options, QueuePolicy
from mycel.sim.reference_engine import Engine


class WorkStealingOptions(Options, frozen=True, kw_only=True):
    tries: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10
    """Servers asked, one after the other, before an idle server gives up."""


class WorkStealing(QueuePolicy):
    name = "work-stealing"
    options_type = WorkStealingOptions

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, WorkStealingOptions), "the engine makes our own options"
        self.tries: Final = options.tries

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        for task in tasks:
            server = self.random.below(len(self.servers))
            self.engine.send(self.entry(job), server, self.enqueue, task, server, tasks=[task])

    def finished(self, task: Task, server: Server) -> None:
        super().finished(task, server)
        if not self.queues[server.index]:
            self.steal(server.index, self.tries)

    def steal(self, thief: int, tries: int) -> None:
        if tries and not self.queues[thief]:
            victim = self.random.below(len(self.servers))
            self.engine.send(thief, victim, self._asked, thief, victim, tries)

    def _asked(self, thief: int, victim: int, tries: int) -> None:
        stolen = self.take(victim)
        self.engine.send(victim, thief, self._answered, thief, stolen, tries, tasks=stolen)

    def take(self, victim: int) -> list[Task]:
        """The task that has waited longest."""
        queue = self.queues[victim]
        return [queue.popleft()] if queue else []

    def _answered(self, thief: int, stolen: list[Task], tries: int) -> None:
        for task in stolen:
            self.enqueue(task, thief)
        if not stolen:
            self.steal(thief, tries - 1)
