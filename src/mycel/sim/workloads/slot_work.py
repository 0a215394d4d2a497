"""Jobs of one-core tasks as arrays: what both engines run, and the fast one without copying."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from mycel.sim.entities import SLOT, Demand, Job

Integers = NDArray[numpy.int64]


@dataclass(frozen=True, slots=True)
class SlotWork:
    """Jobs in the order of arrival. Job j has the tasks first_task[j] … first_task[j + 1] - 1."""

    arrival_ns: Integers
    entry: Integers
    first_task: Integers
    duration_ns: Integers

    @property
    def job_count(self) -> int:
        return len(self.arrival_ns)

    @property
    def task_count(self) -> int:
        return len(self.duration_ns)

    def jobs(self, demand: Demand = SLOT) -> list[Job]:
        """The same for the reference engine."""
        made: list[Job] = []
        durations = self.duration_ns.tolist()
        bounds = self.first_task.tolist()
        for number, (arrival, entry) in enumerate(
            zip(self.arrival_ns.tolist(), self.entry.tolist(), strict=True)
        ):
            job = Job(number, arrival, entry)
            for index in range(bounds[number], bounds[number + 1]):
                job.add(index, demand, durations[index], durations[index])
            made.append(job)
        return made
