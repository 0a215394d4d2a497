"""EASY backfill: FIFO, but a later job may go first if it does not delay the first one.

The first job that does not fit gets a reservation: the earliest time at which, by the estimates,
enough slots will be free. A later job is started if it ends before that time, or needs only slots
that the reservation leaves over. It counts slots, as batch systems do: tasks of one core each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mycel.sim.entities import SLOT, Job, Server, Task
from mycel.sim.errors import ScenarioError
from mycel.sim.policy import Options
from mycel.sim.reference_engine import Engine

from .central_queue import CentralFifo


class EasyBackfill(CentralFifo):
    name = "easy-backfill"

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        if any(task.demand != SLOT for job in engine.jobs for task in job.tasks):
            raise ScenarioError(
                "easy-backfill counts slots: give tasks of one core each, or another policy"
            )
        self.ends: Final[dict[int, int]] = {}
        """Task → its end by its estimate."""

    def serve(self) -> None:
        super().serve()
        if len(self.waiting) > 1:
            self._backfill()

    def _backfill(self) -> None:
        now = self.engine.now
        free = self.ledger.slots_free
        self.waiting.sort()  # a sorted list is a heap too
        needed = len(self.waiting[0][1])
        shadow_ns, spare = self._reservation(needed, free)
        kept = [self.waiting[0]]
        for entry in self.waiting[1:]:
            item = entry[1]
            count = len(item)
            length_ns = max(task.estimate_ns for task in item)
            ends_before = now + length_ns <= shadow_ns
            if count <= free and (ends_before or count <= spare) and self.start(item):
                free -= count
                spare -= 0 if ends_before else count
            else:
                kept.append(entry)
        self.waiting = kept

    def _reservation(self, needed: int, free: int) -> tuple[int, int]:
        """When the first job can start, and how many slots are left over then."""
        shadow_ns = self.engine.now
        for end_ns in sorted(max(end, self.engine.now) for end in self.ends.values()):
            if free >= needed:
                break
            free += 1
            shadow_ns = end_ns
        else:
            if free < needed:  # servers have failed: nothing is promised to the first job
                return self.engine.now, 0
        # Everything that ends at the same moment is free by then.
        free = self._free_at(shadow_ns)
        return shadow_ns, free - needed

    def _free_at(self, time_ns: int) -> int:
        ended = sum(max(end, self.engine.now) <= time_ns for end in self.ends.values())
        return self.ledger.slots_free + ended

    def start(self, item: Sequence[Task]) -> bool:
        started = super().start(item)
        if started:
            for task in item:
                self.ends[task.index] = self.engine.now + task.estimate_ns
        return started

    def _notice(self, task: Task) -> None:
        self.ends.pop(task.index, None)
        super()._notice(task)

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.ends.pop(task.index, None)
        super().place(job, tasks)

    def failed(self, server: Server, lost: Sequence[Task]) -> None:
        for task in lost:
            self.ends.pop(task.index, None)
        super().failed(server, lost)
