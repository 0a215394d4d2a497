"""Stages of jobs: held back until what they need has ended, then started or skipped."""

from __future__ import annotations

from collections import deque
from typing import Final

from mycel.core.model.jobs import Block, Job, task_key
from mycel.core.model.stages import HANDED_BYTES_MAX, Handed, StageRun
from mycel.core.scheduler.state import State
from mycel.core.states import StageState, StageStep

from .attempts import Attempts

SKIP_CHUNK: Final = 500
"""So many tasks of a skipped stage end in one event."""
DEPENDENCY_FAILED: Final = "dependency_failed"


class Staging:
    def __init__(self, state: State, attempts: Attempts) -> None:
        self._state = state
        self._attempts = attempts
        self._skipping: deque[tuple[StageRun, int, int]] = deque()
        """Stages whose tasks are being cancelled: the next one's block and place in it."""

    def take_in(self, block: Block) -> None:
        """A block's tasks wait: in the queue of their shape, or for their stage."""
        state, stage = self._state, block.stage
        if stage is not None and block.is_held_back:
            state.held_back += block.fresh
            state.staged[block.job.number] = block.job
            if stage.state is StageState.SKIPPED:
                self._skipping.append((stage, len(stage.blocks) - 1, 0))
            return
        if stage is not None:
            block.handed = stage.handed
        queue = state.queue_of(block.group.shape)
        queue.add_block(block)
        state.touch(queue)

    def look(self) -> None:
        """Starts, ends and skips what has become due; the skipped tasks end piece by piece."""
        jobs, self._state.staged = self._state.staged, {}
        for job in jobs.values():
            while self._look_once(job):
                pass

    def _look_once(self, job: Job) -> bool:
        changed = False
        for run in job.stages:
            if run.state is StageState.WAITING:
                reason = _reason_to_skip(run)
                if reason:
                    self._skip(run, reason)
                    changed = True
                elif all(need.state is StageState.ENDED for need in run.needs):
                    self._start(run)
                    changed = True
            elif run.state is StageState.STARTED and job.closed and run.all_ended:
                run.step(StageStep.END)
                changed = True
        return changed

    def _start(self, run: StageRun) -> None:
        run.step(StageStep.START)
        if run.wants:
            run.handed = Handed({need.name: need.all_results() for need in run.wants})
        for block in run.blocks:
            self._state.held_back -= block.fresh
            self.take_in(block)

    def _skip(self, run: StageRun, reason: str) -> None:
        run.step(StageStep.SKIP)
        run.skip_reason = reason
        if run.count:
            self._skipping.append((run, 0, 0))

    @property
    def has_more(self) -> bool:
        return bool(self._skipping)

    def go_on(self, now: float) -> None:
        """Cancels the next tasks of skipped stages."""
        left = SKIP_CHUNK
        while self._skipping and left:
            run, place, position = self._skipping.popleft()
            block = run.blocks[place]
            while position < block.count and left:
                index = block.first + position
                if not block.job.is_ended(block, index):
                    key = task_key(block.job.number, index)
                    self._attempts.cancel(
                        key, block, index, DEPENDENCY_FAILED, now, run.skip_reason
                    )
                    left -= 1
                position += 1
            if position < block.count:
                self._skipping.appendleft((run, place, position))
            elif place + 1 < len(run.blocks):
                self._skipping.appendleft((run, place + 1, 0))


def _reason_to_skip(run: StageRun) -> str:
    for need in run.needs:
        if need.state is StageState.SKIPPED:
            return need.skip_reason
        if need.has_failed:
            how = "failed" if need.failed else "was cancelled"
            return f"a task of stage {need.name!r} {how}"
    for need in run.wants:
        if need.hands_too_much:
            return (
                f"the results of stage {need.name!r} are more than "
                f"{HANDED_BYTES_MAX >> 10} KiB together, too much to hand on"
            )
    return ""
