"""Each task goes to a random server and waits in its queue."""

from __future__ import annotations

from collections.abc import Sequence

from mycel.sim.entities import Job, Task
from mycel.sim.policy import QueuePolicy


class Random(QueuePolicy):
    name = "random"

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        for task in tasks:
            server = self.random.below(len(self.servers))
            self.engine.send(self.entry(job), server, self.enqueue, task, server, tasks=[task])
