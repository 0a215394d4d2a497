"""The health of workers: measured with every attempt that ends, journalled now and then.

It outlives the worker's record, so that a worker that comes back, to this boot or the next, is
known by what it did before.
"""

from __future__ import annotations

from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.journal import WorkerMeasured, WorkersForgotten
from mycel.core.messages import Outcome
from mycel.core.model.jobs import Block
from mycel.core.scheduler.records import Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue
from mycel.core.scheduler.workers.reliability import WorkerHealth, restored_health

KEPT_MAX: Final = 20_000
"""Workers whose health is kept; those that are gone and were not seen for longest go first."""

Took = dict[ShapeQueue, list[float]]
"""Seconds that successful attempts took, by the queue of their shape."""


class Measuring:
    def __init__(self, state: State) -> None:
        self._state = state

    def restore(self, measured: list[WorkerMeasured]) -> None:
        for one in measured:
            self._state.healths[one.worker] = restored_health(one)

    def successes(self, worker: Worker, took: Took, now: float) -> None:
        """For all that came together, because it is on the way of every task."""
        if not took:
            return
        for queue, seconds in took.items():
            count, total = len(seconds), sum(seconds)
            worker.health.success(total, count)
            worker.compare(queue.usual.measure(total / count, count), count)
        self._changed(worker, now)

    def usage(self, block: Block, outcome: Outcome, seconds: float, now: float) -> None:
        """What a task used is remembered for later ones of its kind that name no resources."""
        state = self._state
        work = block.group.specification.work
        peak, cpu_seconds = outcome.peak_memory, outcome.cpu_seconds
        seen = state.profiles.observe(work, peak, cpu_seconds, seconds, state.unix(now))
        if seen is not None:
            state.record(seen)

    def failure(self, worker: Worker, *, at_fault: bool, now: float) -> None:
        worker.health.failure(at_fault=at_fault)
        self._changed(worker, now)

    def _changed(self, worker: Worker, now: float) -> None:
        state = self._state
        if not state.unsaved_healths:
            due = now + state.settings.health_save_seconds
            state.timers.set(("health", None), due)
        state.unsaved_healths[worker.peer] = worker.health

    def save(self, _: object, now: float) -> None:
        state = self._state
        for peer, health in state.unsaved_healths.items():
            worker = state.workers.get(peer)
            if worker is not None:
                self._note_last_seen(worker)
            state.healths[peer] = health
            state.record(health.measured(peer))
        state.unsaved_healths.clear()
        self._forget_oldest()

    def gone(self, worker: Worker) -> None:
        """Its record is dropped; how it was stays."""
        self._note_last_seen(worker)
        if worker.health.success_rate is not None:
            self._state.healths[worker.peer] = worker.health
            self._state.record(worker.health.measured(worker.peer))

    def _note_last_seen(self, worker: Worker) -> None:
        if worker.last_heard is not None:
            worker.health.last_seen_at = self._state.unix(worker.last_heard)

    def _forget_oldest(self) -> None:
        state = self._state
        surplus = len(state.healths) - KEPT_MAX
        if surplus <= 0:
            return

        def last_seen(item: tuple[PeerId, WorkerHealth]) -> float:
            return item[1].last_seen_at or 0.0

        strangers = [item for item in state.healths.items() if item[0] not in state.workers]
        oldest = [peer for peer, _ in sorted(strangers, key=last_seen)[:surplus]]
        for peer in oldest:
            del state.healths[peer]
        if oldest:
            state.record(WorkersForgotten(tuple(oldest)))
