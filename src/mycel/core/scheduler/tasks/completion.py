"""The ends of attempts, tasks and jobs: what is journalled of them, what is counted, and who
hears of it."""

from __future__ import annotations

from typing import Final

from mycel.core.effects import TaskLeft
from mycel.core.journal import AttemptEnded, JobEnded, TaskEnded
from mycel.core.messages import Outcome
from mycel.core.model.failures import LOST
from mycel.core.model.jobs import Block, Job, TaskKey
from mycel.core.model.stages import TOO_MUCH, handed_value
from mycel.core.scheduler.clients.read_views import job_view, over
from mycel.core.scheduler.records import Attempt
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.retry_policy import Cause
from mycel.core.states import TaskState

UNHEARD: Final = ("lost", "cancelled")
"""Ends of which no worker has told anything."""


class Ending:
    def __init__(self, state: State) -> None:
        self._state = state

    def attempt(
        self,
        attempt: Attempt,
        cause: Cause | None,
        exit_code: int | None,
        error: str,
        now: float,
        cost: float = 0.0,
        code: str = LOST,
    ) -> None:
        """One that is not its task's last. Without a cause it does not count."""
        ended = AttemptEnded(
            job=attempt.job.number,
            index=attempt.index,
            owner_epoch=attempt.block.owner_epoch,
            attempt=attempt.id,
            state=attempt.state.value,
            counts=cause is not None,
            number=attempt.number,
            worker=attempt.worker.peer,
            exit_code=exit_code,
            error=error,
            started_at=self._unix(attempt.started_at),
            ended_at=self._state.unix(now),
            cause="" if cause is None else cause.value,
            cost=cost,
            code=code,
        )
        self._state.record(ended)
        self._state.histories.setdefault(attempt.key, []).append(ended)

    def task(
        self,
        attempt: Attempt,
        outcome: Outcome,
        state: TaskState,
        now: float,
        reason: str = "",
    ) -> None:
        ended = TaskEnded(
            attempt.job.number,
            attempt.index,
            attempt.block.owner_epoch,
            state.value,
            reason,
            attempt.id,
            attempt.state.value,
            attempt.number,
            attempt.worker.peer,
            outcome.exit_code,
            outcome.value,
            outcome.digest,
            outcome.error,
            outcome.stdout,
            outcome.stderr,
            self._unix(attempt.started_at),
            self._state.unix(now if reason else _end_of(attempt, outcome, now)),
            outcome.value_size,
            self.spent(attempt.key) + cost_of(outcome),
            attempt.progress,
            outcome.code,
        )
        attempt.job.file_bytes += outcome.value_size
        # What was there before this boot may have left something then.
        if attempt.was_long or attempt.block.old or attempt.key in self._state.histories:
            lacks_output = outcome.crashed or outcome.driver_fault or outcome.state in UNHEARD
            self._state.emit(TaskLeft(attempt.job.id, attempt.index, not lacks_output))
        self._close(attempt.block, attempt.index, attempt.key, ended, state, now)

    def waiting(
        self,
        key: TaskKey,
        block: Block,
        index: int,
        task_state: TaskState,
        reason: str,
        error: str,
        now: float,
    ) -> None:
        """A task of which no attempt was out."""
        state = self._state
        if block.old or key in state.histories:
            state.emit(TaskLeft(block.job.id, index, has_output=False))
        ended = TaskEnded(
            job=block.job.number,
            index=index,
            owner_epoch=block.owner_epoch,
            state=task_state.value,
            reason=reason,
            attempt=None,
            attempt_state="",
            number=0,
            worker=None,
            exit_code=None,
            value=b"",
            digest=b"",
            error=error,
            stdout=b"",
            stderr=b"",
            started_at=None,
            ended_at=state.unix(now),
        )
        self._close(block, index, key, ended, task_state, now)

    def _close(
        self,
        block: Block,
        index: int,
        key: TaskKey,
        ended: TaskEnded,
        task_state: TaskState,
        now: float,
    ) -> None:
        state, job = self._state, block.job
        job.end_task(block, index, task_state)
        if job.stages:
            stage = job.stages[block.group.stage]
            if stage.stage.hands_on and task_state is TaskState.SUCCEEDED:
                value = TOO_MUCH if ended.value_size else ended.value
                stage.keep(index, handed_value(value, ended.stdout))
            state.staged[job.number] = job
        if task_state is TaskState.SUCCEEDED:
            state.succeeded += 1
        elif task_state is TaskState.FAILED:
            state.failed += 1
        else:
            state.cancelled += 1
        if task_state is not TaskState.CANCELLED:
            state.latency_seconds.append(state.unix(now) - job.created_at)
        if state.histories:
            state.histories.pop(key, None)
        state.record(ended)
        state.advance(job)
        for request in state.task_waiters.pop(key, ()) if state.task_waiters else ():
            state.reply(request, over(job, block, index, ended))
        if job.is_through:
            self.job(job, now)

    def job(self, job: Job, now: float) -> None:
        state = self._state
        job.state = job.final_state()
        job.ended_at = state.unix(now)
        state.record(JobEnded(job.number, job.state.value, job.ended_at))
        for group in job.groups:
            queue = state.queues.get(group.shape)
            if queue is not None:
                queue.drop_job(job)
        for block in job.blocks:
            block.forget_arguments()
        state.advance(job)
        for request in state.job_waiters.pop(job.number, ()):
            state.reply(request, job_view(job))
        state.has_ended(job)
        limits = state.settings
        if state.ended_tasks > limits.retention_tasks or state.ended_bytes > limits.retention_bytes:
            state.timers.set(("prune", None), now)

    def spent(self, key: TaskKey) -> float:
        """What the earlier attempts of a task have cost."""
        if not self._state.histories:
            return 0.0
        return sum(ended.cost for ended in self._state.histories.get(key, ()))

    def _unix(self, when: float | None) -> float | None:
        return None if when is None else self._state.unix(when)


def _end_of(attempt: Attempt, outcome: Outcome, now: float) -> float:
    """When it ended at its worker, if that has told: a result may have waited for us."""
    if attempt.started_at is None or not outcome.started_at:
        return now
    return min(now, attempt.started_at + (outcome.ended_at - outcome.started_at))


def cost_of(outcome: Outcome) -> float:
    """Nothing, where the worker is to blame, or nobody knows what it did."""
    if outcome.driver_fault or outcome.state in UNHEARD:
        return 0.0
    return outcome.cost
