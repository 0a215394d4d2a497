"""Fragmentation gradient descent: the server and GPU whose fragmentation grows least."""

from __future__ import annotations

from collections import Counter
from typing import Final

from mycel.sim.entities import Task
from mycel.sim.ledger import Hold
from mycel.sim.policy import Options
from mycel.sim.reference_engine import Engine

from .central_queue import CentralFifo
from .fragmentation import Fragmentation


class FragmentationGradient(CentralFifo):
    name = "fgd"

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        demands = Counter(task.demand for job in engine.jobs for task in job.tasks)
        self.fragmentation: Final = Fragmentation(demands)

    def choose(self, task: Task) -> Hold | None:
        best = self.fragmentation.best(self.ledger, task.demand)
        return None if best is None else self.ledger.book(best.server, task.demand, best.gpus)
