"""The emptiest server of a snapshot that every scheduler gets once a period.

Between snapshots a scheduler adds what it has sent itself, not what others have. The longer the
period, the more of them pick the same servers.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from mycel.sim.entities import NS_PER_MS, Job, Task
from mycel.sim.policy import Options, QueuePolicy
from mycel.sim.reference_engine import Engine


class LeastLoadedOptions(Options, frozen=True, kw_only=True):
    snapshot_ms: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 100.0


class LeastLoaded(QueuePolicy):
    name = "least-loaded"
    options_type = LeastLoadedOptions

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, LeastLoadedOptions), "the engine makes our own options"
        self.views: Final[list[list[tuple[int, int]]]] = [[] for _ in range(engine.schedulers)]
        self._snapshot()
        engine.every(round(options.snapshot_ms * NS_PER_MS), self._snapshot)

    def _snapshot(self) -> None:
        self.engine.counters.messages += len(self.servers)
        up = [server for server in self.servers if server.is_up] or self.servers
        loads = [(self.load(server.index), server.index) for server in up]
        heapq.heapify(loads)
        for view in self.views:
            view[:] = loads

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        view = self.views[job.entry % self.engine.schedulers]
        for task in tasks:
            load, server = view[0]
            heapq.heapreplace(view, (load + 1, server))
            self.engine.send(self.entry(job), server, self.enqueue, task, server, tasks=[task])
