"""A server runs a task if it has room, else passes it on to a random server, a few times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from mycel.sim.entities import Job, Task
from mycel.sim.policy import Options, QueuePolicy
from mycel.sim.reference_engine import Engine


class RandomWalkOptions(Options, frozen=True, kw_only=True):
    hops_max: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 8


class RandomWalk(QueuePolicy):
    name = "random-walk"
    options_type = RandomWalkOptions
    jobs_arrive_at = "servers"

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, RandomWalkOptions), "the engine makes our own options"
        self.hops_max: Final = options.hops_max

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._arrive(task, self.entry(job), 0)

    def _arrive(self, task: Task, here: int, hops: int) -> None:
        has_room = self.servers[here].fits(task.demand) and not self.queues[here]
        if has_room or hops >= self.hops_max:
            self.enqueue(task, here)
        else:
            goal = self.random.below(len(self.servers))
            self.engine.send(here, goal, self._arrive, task, goal, hops + 1, tasks=[task])
