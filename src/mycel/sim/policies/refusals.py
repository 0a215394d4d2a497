"""For policies that send a task to a server which is believed to have room, and may be wrong.

A server without room refuses, and the task's scheduler chooses again. After `tries_max` refusals
the task waits in the queue of the last server.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Final

import msgspec

from mycel.sim.entities import Demand, Resources, Task
from mycel.sim.policy import Options, QueuePolicy
from mycel.sim.reference_engine import Engine


class RefusalOptions(Options, frozen=True, kw_only=True):
    tries_max: Annotated[int, msgspec.Meta(ge=0, le=64)] = 3


class RefusalPolicy(QueuePolicy):
    options_type = RefusalOptions
    needs_equal_servers = False

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, RefusalOptions), "the engine makes our own options"
        self.tries_max: Final = options.tries_max
        self.tries: Final[dict[int, int]] = {}

    @abstractmethod
    def refused(self, task: Task, server: int) -> None:
        """Runs at the task's scheduler."""

    def try_server(self, task: Task, server: int) -> None:
        self.engine.send(self.entry(task.job), server, self._arrive, task, server, tasks=[task])

    def _arrive(self, task: Task, server: int) -> None:
        has_room = self.servers[server].fits(task.demand) and not self.queues[server]
        if has_room or self.tries.get(task.index, 0) >= self.tries_max:
            self.tries.pop(task.index, None)
            self.enqueue(task, server)
            return
        self.tries[task.index] = self.tries.get(task.index, 0) + 1
        self.turned_away(task, server)
        there = self.entry(task.job)
        self.engine.send(server, there, self.refused, task, server, tasks=[task], is_repeated=True)

    def turned_away(self, task: Task, server: int) -> None:
        """Runs at the server that refuses."""

    def is_able(self, server: int, demand: Demand) -> bool:
        """Whether the server would be large enough if it were empty."""
        return Resources(self.servers[server].resources.capacity).fits(demand)
