"""Attempts: sending tasks out under leases, and what becomes of them.

A task is sent under a fresh attempt id every time. A result counts only if its attempt is the
task's current one; everything else is acknowledged and dropped, so that its worker forgets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mycel.core.effects import JobDelayed
from mycel.core.identifiers import AttemptId
from mycel.core.jobs import Block, Job, TaskKey, task_key
from mycel.core.journal import AttemptEnded, JobEnded, TaskEnded
from mycel.core.messages import (
    MESSAGE_BYTES,
    Acknowledge,
    Assign,
    Bundle,
    Kill,
    Outcome,
    Window,
)
from mycel.core.queue import ShapeQueue, Waiting
from mycel.core.retry import Cause, delay_seconds, is_retried
from mycel.core.states import (
    TASK,
    AttemptState,
    AttemptStep,
    LeaseState,
    TaskState,
    TaskStep,
)

from .state import State
from .tables import Attempt, Lease, Worker
from .views import job_view

ACKNOWLEDGED_AT_ONCE: Final = 500

_STEPS = {
    "succeeded": AttemptStep.SUCCEED,
    "failed": AttemptStep.FAIL,
    "timed_out": AttemptStep.TIME_OUT,
    "cancelled": AttemptStep.CANCEL,
}


class Assigning:
    def __init__(self, state: State) -> None:
        self._state = state

    # Sending

    def fill(self, queue: ShapeQueue, now: float) -> None:
        """Sends what waits into the room that the leases of this shape have."""
        if not queue.waiting:
            return
        leases = [lease for lease in self._leases_of(queue) if self._is_usable(lease)]
        if not leases:
            return
        leases.sort(key=lambda lease: (lease.outstanding / lease.slots, lease.key))
        careful = now < queue.careful_until
        # Idle slots first, wherever they are; only then does anything wait behind another.
        limits = [self._slots_to_fill(lease) for lease in leases]
        self._spread(queue, leases, limits, now)
        if queue.waiting:
            limits = [self._window(lease, careful) for lease in leases]
            self._spread(queue, leases, limits, now)

    def _leases_of(self, queue: ShapeQueue) -> list[Lease]:
        return [
            lease
            for worker in self._state.workers.values()
            for lease in worker.leases.values()
            if lease.queue is queue
        ]

    @staticmethod
    def _is_usable(lease: Lease) -> bool:
        return lease.worker.is_healthy and lease.state in (LeaseState.HELD, LeaseState.YIELDING)

    @staticmethod
    def _slots_to_fill(lease: Lease) -> int:
        return lease.target_slots if lease.state is LeaseState.YIELDING else lease.slots

    def _window(self, lease: Lease, careful: bool) -> int:
        if lease.state is LeaseState.YIELDING:
            return lease.target_slots
        return min(lease.window, lease.slots + 1) if careful else lease.window

    def _spread(
        self, queue: ShapeQueue, leases: list[Lease], limits: list[int], now: float
    ) -> None:
        for position, lease in enumerate(leases):
            rest = len(leases) - position
            fair = -(-queue.waiting // rest)
            room = min(limits[position] - lease.outstanding, fair, self._allowance())
            if room > 0:
                self._send(lease, queue.take(room), now)

    def _allowance(self) -> int:
        limit = self._state.settings.max_concurrent_tasks
        return 1 << 30 if limit is None else limit - len(self._state.attempts)

    def _send(self, lease: Lease, tasks: list[tuple[Block, int]], now: float) -> None:
        """In as many messages as the size of the arguments asks for."""
        part: list[tuple[Block, int, bytes]] = []
        size = 0
        for block, index in tasks:
            argument = block.argument(index)
            encoded = b"" if argument is None else bytes(argument)
            size += len(encoded)
            if part and size > MESSAGE_BYTES:
                self._send_part(lease, part, now)
                part, size = [], len(encoded)
            part.append((block, index, encoded))
        if part:
            self._send_part(lease, part, now)
        for block, _ in tasks:
            if block.fresh == 0:
                block.forget_items()

    def _send_part(self, lease: Lease, tasks: list[tuple[Block, int, bytes]], now: float) -> None:
        state, worker = self._state, lease.worker
        first = state.next_attempts(len(tasks))
        attempt_id: int = first
        bundles: list[Bundle] = []
        bundle_job: Job | None = None
        for block, index, argument in tasks:
            if block.job is not bundle_job:
                bundle_job = block.job
                bundles.append(self._empty_bundle(AttemptId(attempt_id), block))
            bundle = bundles[-1]
            key = task_key(bundle_job.number, index)
            assert key not in state.current, "a task was sent while an attempt of it is out"
            number = 1 + state.counted(key) if state.histories else 1
            attempt = Attempt(AttemptId(attempt_id), key, block, index, worker, lease, number)
            attempt.task_state = TASK[TaskState.QUEUED, TaskStep.ASSIGN]
            state.attempts[attempt.id] = state.current[key] = attempt
            worker.attempts[attempt.id] = attempt
            bundle.indices.append(index)
            bundle.numbers.append(number)
            if argument:
                bundle.arguments.append(argument)
            bundle_job.live += 1
            attempt_id += 1
        lease.outstanding += len(tasks)
        lease.queue.live += len(tasks)
        lease.unaccepted.append((first, len(tasks), now))
        state.timers.set(("accept", lease.key), now + state.settings.health_check_timeout)
        state.send(worker.peer, Assign(lease.id, bundles))

    def _empty_bundle(self, first: AttemptId, block: Block) -> Bundle:
        job = block.job
        work = job.specification.work
        return Bundle(first, job.number, job.id, block.owner_epoch, work, [], [], [])

    # What comes back

    def started(self, worker: Worker, attempts: Iterable[tuple[AttemptId, float]]) -> None:
        """The times are on the scheduler's own clock already."""
        for attempt_id, started_at in attempts:
            attempt = worker.attempts.get(attempt_id)
            if attempt is not None:
                attempt.start(started_at)

    def windows(self, worker: Worker, windows: Iterable[Window]) -> None:
        for window in windows:
            lease = worker.leases.get(window.lease)
            if lease is not None:
                lease.window = max(window.size, lease.slots)
                self._state.touch(lease.queue)

    def outcomes(
        self, worker: Worker, outcomes: Sequence[Outcome], clock_offset: float, now: float
    ) -> None:
        """`clock_offset` turns the worker's clock into the scheduler's."""
        acknowledged: list[AttemptId] = []
        for outcome in outcomes:
            attempt = worker.attempts.get(outcome.attempt)
            if attempt is not None and self._is_current(attempt):
                self._conclude(attempt, outcome, clock_offset, now)
            acknowledged.append(outcome.attempt)
        self._acknowledge_soon(worker, acknowledged, now)

    def _acknowledge_soon(self, worker: Worker, attempts: list[AttemptId], now: float) -> None:
        """The worker keeps its results until then, and nobody waits for that."""
        if not worker.to_acknowledge:
            due = now + self._state.settings.acknowledge_seconds
            self._state.timers.set(("acknowledge", worker.peer), due)
        worker.to_acknowledge += attempts
        if len(worker.to_acknowledge) >= ACKNOWLEDGED_AT_ONCE:
            self.acknowledge(worker, now)

    def acknowledge(self, worker: Worker, now: float) -> None:
        """Leaves after the commit of what it acknowledges, as everything does."""
        attempts, worker.to_acknowledge = worker.to_acknowledge, []
        if attempts:
            self._state.send(worker.peer, Acknowledge(attempts))

    def _is_current(self, attempt: Attempt) -> bool:
        return self._state.current.get(attempt.key) is attempt

    def _conclude(
        self, attempt: Attempt, outcome: Outcome, clock_offset: float, now: float
    ) -> None:
        if outcome.started_at:
            attempt.started_at = outcome.started_at + clock_offset
        if outcome.state == "succeeded":
            if outcome.value and outcome.digest != self._state.digest(outcome.value):
                error = "the result's digest does not fit its bytes; it was damaged on the way"
                damaged = msgspec.structs.replace(
                    outcome, state="failed", value=b"", error=error, driver_fault=True
                )
                self._failed(attempt, damaged, now)
                return
            self._remove(attempt, AttemptStep.SUCCEED, TaskStep.SUCCEED, now)
            attempt.worker.succeeded += 1
            attempt.worker.busy_seconds += max(0.0, outcome.ended_at - outcome.started_at)
            self._end_task(attempt, outcome, TaskState.SUCCEEDED, now)
        else:
            self._failed(attempt, outcome, now)

    def _failed(self, attempt: Attempt, outcome: Outcome, now: float) -> None:
        state = self._state
        if outcome.state == "timed_out":
            cause = Cause.TIMEOUT
        elif outcome.driver_fault or outcome.state == "cancelled":
            # A worker that kills a task on its own account is at fault, not the task.
            cause = Cause.WORKER
        else:
            cause = Cause.ERROR
        attempt.worker.failed += 1
        state.unsuccessful_attempts += 1
        counted = state.counted(attempt.key) + 1
        retry = attempt.job.specification.retry
        step = _STEPS[outcome.state]
        if is_retried(state.settings.retry, retry, cause, counted):
            self._remove(attempt, step, TaskStep.RETRY, now)
            self._journal_end(attempt, True, outcome.exit_code, outcome.error, now)
            self._back_off(attempt, counted, cause.value, now)
        else:
            self._remove(attempt, step, TaskStep.FAIL, now)
            self._end_task(attempt, outcome, TaskState.FAILED, now)

    def give_back(self, attempt: Attempt, now: float) -> None:
        """It was never started: it does not count, and the task waits again at once."""
        if attempt.state is not AttemptState.ASSIGNED:
            self.lose(attempt, False, "the worker does not have it any more", now)
            return
        self._remove(attempt, AttemptStep.RETURN, TaskStep.GIVE_BACK, now)
        self._requeue(attempt)

    def lose(self, attempt: Attempt, counts: bool, reason: str, now: float) -> None:
        """Its worker is gone, or has forgotten it."""
        state = self._state
        state.unsuccessful_attempts += 1
        queue = state.queue_of(attempt.job.shape)
        queue.careful_until = now + state.settings.careful_seconds
        if not counts:
            self._remove(attempt, AttemptStep.LOSE, TaskStep.RETRY, now)
            self._journal_end(attempt, False, None, reason, now)
            self._requeue(attempt)
            return
        attempt.worker.failed += 1
        counted = state.counted(attempt.key) + 1
        if is_retried(state.settings.retry, attempt.job.specification.retry, Cause.WORKER, counted):
            self._remove(attempt, AttemptStep.LOSE, TaskStep.RETRY, now)
            self._journal_end(attempt, True, None, reason, now)
            self._back_off(attempt, counted, reason, now)
            return
        self._remove(attempt, AttemptStep.LOSE, TaskStep.FAIL, now)
        error = f"{reason}; it was tried {counted} times"
        outcome = Outcome(attempt.id, attempt.job.number, attempt.index, "lost", error=error)
        self._end_task(attempt, outcome, TaskState.FAILED, now)

    def supersede(self, attempt: Attempt, now: float) -> None:
        """A higher attempt of the same task lives: this one is killed and forgotten."""
        self._state.send(attempt.worker.peer, Kill([attempt.id]))
        self._remove(attempt, AttemptStep.LOSE, TaskStep.RETRY, now)

    def cancel(self, key: TaskKey, block: Block, index: int, reason: str, now: float) -> None:
        """Commits at once and fences the attempt; the kill follows."""
        state = self._state
        attempt = state.current.get(key)
        if attempt is not None:
            state.send(attempt.worker.peer, Kill([attempt.id]))
            self._remove(attempt, AttemptStep.CANCEL, TaskStep.CANCEL, now)
        else:
            taken = state.backoff.remove(key) or self._queue(block).take_one(block, index)
            assert taken, "a task that is neither out nor ended must wait somewhere"
            assert TASK[TaskState.QUEUED, TaskStep.CANCEL] is TaskState.CANCELLED
        ended = TaskEnded(
            job=block.job.number,
            index=index,
            owner_epoch=block.owner_epoch,
            state=TaskState.CANCELLED.value,
            reason=reason,
            attempt=None if attempt is None else attempt.id,
            attempt_state="" if attempt is None else attempt.state.value,
            number=0 if attempt is None else attempt.number,
            worker=None if attempt is None else attempt.worker.peer,
            exit_code=None,
            value=b"",
            digest=b"",
            error="",
            stdout=b"",
            stderr=b"",
            started_at=self._unix(None if attempt is None else attempt.started_at),
            ended_at=state.unix(now),
        )
        self._close_task(block, index, key, ended, TaskState.CANCELLED, now)

    # The ends

    def _end_task(self, attempt: Attempt, outcome: Outcome, state: TaskState, now: float) -> None:
        ended = TaskEnded(
            attempt.job.number,
            attempt.index,
            attempt.block.owner_epoch,
            state.value,
            "",
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
            self._state.unix(now),
        )
        self._close_task(attempt.block, attempt.index, attempt.key, ended, state, now)

    def _close_task(
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
        if task_state is TaskState.SUCCEEDED:
            state.succeeded += 1
            state.latency_seconds.append(state.unix(now) - job.created_at)
        elif task_state is TaskState.FAILED:
            state.failed += 1
        else:
            state.cancelled += 1
        if state.histories:
            state.histories.pop(key, None)
        state.record(ended)
        state.advance(job)
        for request in state.task_waiters.pop(key, ()) if state.task_waiters else ():
            state.reply(request, ended)
        if job.is_through:
            self.end_job(job, now)

    def end_job(self, job: Job, now: float) -> None:
        state = self._state
        job.state = job.final_state()
        job.ended_at = state.unix(now)
        state.record(JobEnded(job.number, job.state.value, job.ended_at))
        state.queue_of(job.shape).drop_job(job)
        for block in job.blocks:
            block.forget_arguments()
        state.advance(job)
        for request in state.job_waiters.pop(job.number, ()):
            state.reply(request, job_view(job))
        state.has_ended(job)
        if state.ended_tasks > state.settings.retention_tasks:
            state.timers.set(("prune", None), now)

    def _remove(self, attempt: Attempt, step: AttemptStep, task_step: TaskStep, now: float) -> None:
        """Out of the tables, with its new state: nothing of it is accepted from now on."""
        state = self._state
        attempt.end(step, task_step)
        del state.attempts[attempt.id]
        if state.current.get(attempt.key) is attempt:
            del state.current[attempt.key]
        del attempt.worker.attempts[attempt.id]
        attempt.job.live -= 1
        lease = attempt.lease
        if lease is not None:
            lease.outstanding -= 1
            lease.queue.live -= 1
            if lease.outstanding == 0:
                lease.idle_since = now
                lease.unaccepted.clear()
            state.touch(lease.queue)

    def _journal_end(
        self, attempt: Attempt, counts: bool, exit_code: int | None, error: str, now: float
    ) -> None:
        ended = AttemptEnded(
            job=attempt.job.number,
            index=attempt.index,
            owner_epoch=attempt.block.owner_epoch,
            attempt=attempt.id,
            state=attempt.state.value,
            counts=counts,
            number=attempt.number,
            worker=attempt.worker.peer,
            exit_code=exit_code,
            error=error,
            started_at=self._unix(attempt.started_at),
            ended_at=self._state.unix(now),
        )
        self._state.record(ended)
        self._state.histories.setdefault(attempt.key, []).append(ended)

    def _back_off(self, attempt: Attempt, counted: int, reason: str, now: float) -> None:
        state = self._state
        delay = delay_seconds(state.settings.retry, counted, 2.0 * state.random() - 1.0)
        waiting = Waiting(attempt.key, attempt.block, attempt.index)
        state.backoff.add(waiting, now + delay)
        state.emit(JobDelayed(attempt.job.id, attempt.index, attempt.number, reason, delay))

    def _requeue(self, attempt: Attempt) -> None:
        queue = self._queue(attempt.block)
        queue.give_back(Waiting(attempt.key, attempt.block, attempt.index))
        self._state.touch(queue)

    def backed_off(self, now: float) -> None:
        for waiting in self._state.backoff.take_due(now):
            queue = self._queue(waiting.block)
            queue.give_back(waiting)
            self._state.touch(queue)

    def _queue(self, block: Block) -> ShapeQueue:
        return self._state.queue_of(block.job.shape)

    def _unix(self, when: float | None) -> float | None:
        return None if when is None else self._state.unix(when)
