"""The attempts that are out: the one place where they are sent, adopted and removed.

A task has at most one attempt here, its current one. Whatever is not here is nobody's, and nothing
that a worker says of it counts.
"""

from __future__ import annotations

from mycel.core.identifiers import AttemptId
from mycel.core.model.jobs import Block, TaskKey
from mycel.core.scheduler.records import Attempt
from mycel.core.scheduler.state import State
from mycel.core.scheduler.trust.guard import Guard
from mycel.core.scheduler.workers.slot_books import SlotBooks, Slots
from mycel.core.states import TASK, AttemptStep, TaskState, TaskStep


class AttemptTable:
    def __init__(self, state: State, books: SlotBooks, guard: Guard) -> None:
        self._state = state
        self._books = books
        self._guard = guard

    def send(
        self, attempt: AttemptId, key: TaskKey, block: Block, index: int, slots: Slots, now: float
    ) -> Attempt:
        """Its slot, or its place behind another, is taken already."""
        assert key not in self._state.current, "a task was sent while an attempt of it is out"
        return self._add(attempt, key, block, index, slots, TaskStep.ASSIGN, now)

    def adopt(
        self, attempt: AttemptId, key: TaskKey, block: Block, index: int, slots: Slots, now: float
    ) -> Attempt:
        """An attempt of an earlier boot, which its worker has."""
        self._books.adopt(slots)
        return self._add(attempt, key, block, index, slots, TaskStep.ADOPT, now)

    def _add(
        self,
        attempt_id: AttemptId,
        key: TaskKey,
        block: Block,
        index: int,
        slots: Slots,
        step: TaskStep,
        now: float,
    ) -> Attempt:
        state = self._state
        number = 1 + state.counted(key) if state.histories else 1
        attempt = Attempt(attempt_id, key, block, index, slots, number, now)
        attempt.task_state = TASK[TaskState.QUEUED, step]
        state.attempts[attempt_id] = state.current[key] = attempt
        slots.worker.attempts[attempt_id] = attempt
        block.job.live += 1
        return attempt

    def remove(self, attempt: Attempt, step: AttemptStep, task_step: TaskStep) -> None:
        """With its new state: nothing of it is accepted from now on."""
        state = self._state
        attempt.end(step, task_step)
        del state.attempts[attempt.id]
        if state.fetches:
            state.fetches.pop(attempt.id, None)
        if state.current.get(attempt.key) is attempt:
            del state.current[attempt.key]
        del attempt.worker.attempts[attempt.id]
        attempt.job.live -= 1
        self._books.ended(attempt.slots)
        self._guard.left(attempt.worker)
