"""Each task asks d random servers how much they have to do and takes the least loaded.

The answers of one round are read when the farthest server has been reached. With ties, the server
drawn first wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from mycel.sim.entities import Job, Task
from mycel.sim.policy import Options, QueuePolicy
from mycel.sim.reference_engine import Engine


class PowerOfDOptions(Options, frozen=True, kw_only=True):
    d: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 2


class PowerOfD(QueuePolicy):
    name = "power-of-d"
    options_type = PowerOfDOptions

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, PowerOfDOptions), "the engine makes our own options"
        self.d = options.d

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        for task in tasks:
            drawn = [self.random.below(len(self.servers)) for _ in range(self.d)]
            self.engine.counters.messages += 2 * self.d
            delay = self.farthest(job, drawn)
            self.engine.after(delay, self._read, task, drawn, delay)

    def farthest(self, job: Job, drawn: Sequence[int]) -> int:
        """Unreachable servers do not answer; their silence is not waited for."""
        here, network = self.entry(job), self.engine.network
        return max((network.delay_ns(here, server) or 0) for server in drawn)

    def _read(self, task: Task, drawn: list[int], delay: int) -> None:
        up = [server for server in drawn if self.servers[server].is_up] or drawn
        best = min(up, key=self.load)
        self.engine.after(delay, self._send, task, best)

    def _send(self, task: Task, server: int) -> None:
        self.engine.send(self.entry(task.job), server, self.enqueue, task, server, tasks=[task])
