"""A job of m tasks asks d × m random servers at once and takes the m least loaded."""

from __future__ import annotations

from collections.abc import Sequence

from mycel.sim.entities import Job, Task

from .power_of_d import PowerOfD


class BatchSampling(PowerOfD):
    name = "batch-sampling"

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        count = self.d * len(tasks)
        drawn = [self.random.below(len(self.servers)) for _ in range(count)]
        self.engine.counters.messages += 2 * count
        delay = self.farthest(job, drawn)
        self.engine.after(delay, self._read_all, list(tasks), drawn, delay)

    def _read_all(self, tasks: list[Task], drawn: list[int], delay: int) -> None:
        drawn = [server for server in drawn if self.servers[server].is_up] or drawn
        loads = [self.load(server) for server in drawn]
        for task in tasks:
            # A server drawn twice counts with what this job has just given it.
            best = min(range(len(drawn)), key=loads.__getitem__)
            for number, server in enumerate(drawn):
                loads[number] += server == drawn[best]
            self.engine.after(delay, self._send, task, drawn[best])
