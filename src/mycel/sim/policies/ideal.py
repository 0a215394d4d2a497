"""Zero wait: every task starts the moment its job arrives. Others are measured against it."""

from __future__ import annotations

from collections.abc import Sequence

from mycel.sim.entities import Job, Task
from mycel.sim.policy import Policy


class Ideal(Policy):
    name = "ideal"
    starts_gangs = True

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.engine.start_nowhere(task)
