"""Attempts that are out, and what becomes of them.

A result counts only if its attempt is the task's current one; everything else is acknowledged
and dropped, so that its worker forgets it. What ends unfinished is tried again or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mycel.core.effects import TaskStreamed
from mycel.core.identifiers import AttemptId
from mycel.core.messages import (
    Acknowledge,
    Kill,
    Outcome,
    Window,
)
from mycel.core.model.failures import (
    DEADLINE,
    HANDED_BACK,
    LOST,
    MAX_COST,
    POISON,
    RESULT_DAMAGED,
)
from mycel.core.model.jobs import Block, TaskKey
from mycel.core.model.json_depth import objection_to
from mycel.core.model.prices import price_of
from mycel.core.model.work import SERVICE, reserved
from mycel.core.scheduler.attempt_table import AttemptTable
from mycel.core.scheduler.records import AGE_SECONDS_MAX, Attempt, Worker, believed
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.retry_policy import Cause, delay_seconds, is_poison, is_retried
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue, Waiting
from mycel.core.scheduler.tasks.usage_profiles import tells_of_needs
from mycel.core.scheduler.trust.guard import Guard
from mycel.core.scheduler.trust.verdicts import Verdict, verdict_of
from mycel.core.scheduler.workers.worker_health import Measuring, Took
from mycel.core.scheduler.workers.worker_index import Roster
from mycel.core.states import (
    TASK,
    AttemptState,
    AttemptStep,
    TaskState,
    TaskStep,
)

from .attempt_proofs import Authentication
from .completion import Ending, cost_of

LASTED_SECONDS: Final = 60.0
"""A service that has run so long is replaced as if it had never failed before."""
ACKNOWLEDGED_AT_ONCE: Final = 500

DAMAGED: Final = "the result's digest does not fit its bytes; it was damaged on the way"
FORGOTTEN: Final = "the worker does not have it any more"

_STEPS = {
    "succeeded": AttemptStep.SUCCEED,
    "failed": AttemptStep.FAIL,
    "timed_out": AttemptStep.TIME_OUT,
    "cancelled": AttemptStep.CANCEL,
}


def _credible(outcome: Outcome) -> Outcome:
    """What a worker says, as far as it can be."""
    if outcome.state not in _STEPS:
        outcome = msgspec.structs.replace(
            outcome, state="failed", error="its worker does not say how it ended", driver_fault=True
        )
    if not 0.0 <= outcome.ended_at - outcome.started_at <= AGE_SECONDS_MAX:
        outcome = msgspec.structs.replace(outcome, started_at=0.0, ended_at=0.0)
    return outcome


class Attempts:
    def __init__(
        self,
        state: State,
        table: AttemptTable,
        ending: Ending,
        measuring: Measuring,
        roster: Roster,
        authentication: Authentication,
        guard: Guard,
    ) -> None:
        self._guard = guard
        self._state = state
        self._table = table
        self._authentication = authentication
        self._ending = ending
        self._roster = roster
        self._measuring = measuring

    # What comes back

    def started(
        self, worker: Worker, attempts: Iterable[tuple[AttemptId, float]], now: float
    ) -> None:
        """The times are on the scheduler's own clock already."""
        for attempt_id, started_at in attempts:
            attempt = worker.attempts.get(attempt_id)
            if attempt is not None:
                attempt.start(started_at, now)
                self._state.tell(
                    "task.started",
                    believed(started_at, now),
                    attempt.job,
                    attempt.index,
                    worker.peer,
                    attempt=attempt.number,
                )

    def windows(self, worker: Worker, windows: Iterable[Window]) -> None:
        """How deep each lane of a shape is by now."""
        numbered = {window.shape: window for window in windows}
        if not numbered:
            return
        for slots in worker.book.shapes.values():
            window = numbered.get(slots.number)  # type: ignore[call-overload]
            if window is not None:
                slots.depth, slots.long = window.depth, window.long
                if slots.out:
                    slots.queue.credit[slots] = None
                    self._state.touch(slots.queue)

    def outcomes(
        self, worker: Worker, outcomes: Sequence[Outcome], clock_offset: float, now: float
    ) -> None:
        """`clock_offset` turns the worker's clock into the scheduler's."""
        acknowledged: list[AttemptId] = []
        refused: list[Outcome] = []
        took: Took = {}
        for outcome in outcomes:
            attempt = worker.attempts.get(outcome.attempt)
            if attempt is not None and self._is_current(attempt):
                self._conclude(attempt, outcome, clock_offset, now, took)
            else:
                refused.append(outcome)
            acknowledged.append(outcome.attempt)
        if refused:
            self._refuse(worker, refused, now)
        self._measuring.successes(worker, took, now)
        self._roster.moved(worker)
        self._acknowledge_soon(worker, acknowledged, now)

    def _refuse(self, worker: Worker, outcomes: list[Outcome], now: float) -> None:
        """Nothing comes of them. Some are late, and some were never anybody's."""
        self._state.results_refused += len(outcomes)
        forged = self._authentication.forged_of(worker.peer, outcomes, now)
        if forged and self._authentication.refuse(worker.peer, forged, now):
            self._authentication.shut_out(worker.peer)

    def failed_by_driver(self, worker: Worker, outcomes: Sequence[Outcome]) -> list[ShapeQueue]:
        """The queues of model tasks whose server did not do its part."""
        faults = [one.attempt for one in outcomes if one.driver_fault]
        found = [worker.attempts.get(attempt) for attempt in faults]
        queues = dict.fromkeys(one.slots.queue for one in found if one is not None)
        return [queue for queue in queues if queue.shape.driver == "model"]

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
        self, attempt: Attempt, outcome: Outcome, clock_offset: float, now: float, took: Took
    ) -> None:
        outcome = _credible(outcome)
        if outcome.cost:
            outcome = msgspec.structs.replace(outcome, cost=self._cost(attempt, outcome, now))
        if outcome.started_at:
            attempt.started_at = believed(outcome.started_at + clock_offset, now)
        if outcome.state == "succeeded":
            damage = self._damage(outcome) if outcome.value else ""
            if damage:
                self._failed(attempt, self.damaged(outcome, damage), now)
                return
            self._table.remove(attempt, AttemptStep.SUCCEED, TaskStep.SUCCEED)
            seconds = max(0.0, outcome.ended_at - outcome.started_at)
            attempt.slots.is_proven = True
            took.setdefault(attempt.slots.queue, []).append(seconds)
            if tells_of_needs(outcome.peak_memory, seconds):
                self._measuring.usage(attempt.block, outcome, seconds, now)
            self._guard.ended(attempt, Verdict.GOOD, now)
            self._ending.task(attempt, outcome, TaskState.SUCCEEDED, now)
        else:
            self._failed(attempt, outcome, now)

    def _cost(self, attempt: Attempt, outcome: Outcome, now: float) -> float:
        """As its worker says, up to what it has announced for a full machine and the time that
        it had the task; never more than the task may cost."""
        took = outcome.ended_at - outcome.started_at
        held = now - attempt.sent_at
        seconds = max(took, held) if attempt.block.old else held
        need, tariff = reserved(attempt.slots.shape), attempt.worker.capabilities.price
        believed_cost = min(outcome.cost, price_of(tariff, need, 1.0, seconds))
        most = attempt.slots.shape.max_cost
        if most is None:
            return believed_cost
        return min(believed_cost, max(0.0, most - self._ending.spent(attempt.key)))

    def _damage(self, outcome: Outcome) -> str:
        if outcome.digest != self._state.digest(outcome.value):
            return DAMAGED
        return objection_to(outcome.value)

    def damaged(self, outcome: Outcome, error: str = DAMAGED) -> Outcome:
        """A result that is not what its worker says it is."""
        self._state.results_damaged += 1
        return msgspec.structs.replace(
            outcome,
            state="failed",
            value=b"",
            value_size=0,
            error=error,
            driver_fault=True,
            code=RESULT_DAMAGED,
        )

    def _failed(self, attempt: Attempt, outcome: Outcome, now: float) -> None:
        if outcome.state == "timed_out":
            cause = Cause.TIMEOUT
        elif outcome.driver_fault or outcome.state == "cancelled":
            # A worker that kills a task on its own account is at fault, not the task.
            cause = Cause.WORKER
        else:
            cause = Cause.CRASH if outcome.crashed else Cause.ERROR
        self._try_again(attempt, _STEPS[outcome.state], cause, outcome, now)

    def _try_again(
        self, attempt: Attempt, step: AttemptStep, cause: Cause, outcome: Outcome, now: float
    ) -> None:
        """Another attempt follows, or the task has failed."""
        state, settings = self._state, self._state.settings.retry
        state.unsuccessful_attempts += 1
        if cause is Cause.WORKER:  # a task's own failure says nothing of its worker
            self._measuring.failure(attempt.worker, at_fault=True, now=now)
        verdict = verdict_of(outcome.state, outcome.code, driver_fault=outcome.driver_fault)
        self._guard.ended(attempt, verdict, now)
        history = state.histories.get(attempt.key, ())
        causes = [*(ended.cause for ended in history if ended.counts), cause.value]
        counted = len(causes)
        specification = attempt.block.group.specification
        is_service = specification.work.driver == SERVICE
        lasted = attempt.started_at is not None and now - attempt.started_at >= LASTED_SECONDS
        delay = delay_seconds(
            settings, 1 if is_service and lasted else counted, 2.0 * state.random() - 1.0
        )
        reason, error = "", outcome.error
        cost = cost_of(outcome)
        if is_poison(settings, causes) and not is_service:
            reason = POISON
            error += (
                f"; {settings.poison_attempts} attempts in a row took their worker or "
                "interpreter along, so it is not tried again"
            )
        elif outcome.code == MAX_COST:
            reason = MAX_COST
        elif not is_service and not is_retried(settings, specification.retry, cause, counted):
            if counted > 1:
                error += f"; it was tried {counted} times"
        elif self._is_too_dear(attempt, cost):
            reason = MAX_COST
            error += f"; another try could cost more than {specification.max_cost:g} in all"
        elif state.is_past_deadline(specification, now + delay):
            reason = DEADLINE
            error += "; its deadline comes before the next try"
        else:
            self._table.remove(attempt, step, TaskStep.RETRY)
            self._ending.attempt(
                attempt, cause, outcome.exit_code, outcome.error, now, cost, outcome.code
            )
            self._back_off(attempt, delay, outcome.error or cause.value, now)
            return
        self._table.remove(attempt, step, TaskStep.FAIL)
        final = msgspec.structs.replace(outcome, error=error)
        self._ending.task(attempt, final, TaskState.FAILED, now, reason)

    def give_back(self, attempt: Attempt, now: float, reason: str = "") -> None:
        """It was never started, or its worker has stopped it for a reason of its own: it does
        not count, and the task waits again at once."""
        if attempt.state is not AttemptState.ASSIGNED:
            if reason:
                self.lose(attempt, False, f"its worker handed it back: {reason}", now, HANDED_BACK)
            else:
                self.lose(attempt, False, FORGOTTEN, now)
            return
        self._table.remove(attempt, AttemptStep.RETURN, TaskStep.GIVE_BACK)
        self._requeue(attempt, now)

    def lose(
        self, attempt: Attempt, counts: bool, reason: str, now: float, code: str = LOST
    ) -> None:
        """Its worker is gone, has forgotten it, or is not waited for any more."""
        state = self._state
        queue = self._queue(attempt.block)
        queue.careful_until = now + state.settings.careful_seconds
        if counts:
            task = (attempt.id, attempt.job.number, attempt.index)
            outcome = Outcome(*task, "lost", error=reason, code=code)
            self._try_again(attempt, AttemptStep.LOSE, Cause.WORKER, outcome, now)
            return
        state.unsuccessful_attempts += 1
        self._table.remove(attempt, AttemptStep.LOSE, TaskStep.RETRY)
        self._ending.attempt(attempt, None, None, reason, now, code=code)
        self._tell_delay(attempt, reason, 0.0, now)
        self._requeue(attempt, now)

    def _is_too_dear(self, attempt: Attempt, cost: float) -> bool:
        """`max_cost` is for all attempts of a task together. Those that cost nothing, because
        their worker is to blame, count as its price all the same: it may see that otherwise."""
        most = attempt.block.group.specification.max_cost
        if most is None:
            return False
        price = attempt.worker.capabilities.price.floor
        history = self._state.histories.get(attempt.key, ())
        spent = sum(max(price, ended.cost) for ended in history if ended.counts)
        return spent + 2.0 * max(price, cost) > most

    def supersede(self, attempt: Attempt, now: float) -> None:
        """A higher attempt of the same task lives: this one is killed and forgotten."""
        self._state.send(attempt.worker.peer, Kill([attempt.id]))
        self._table.remove(attempt, AttemptStep.LOSE, TaskStep.RETRY)

    def cancel(
        self, key: TaskKey, block: Block, index: int, reason: str, now: float, error: str = ""
    ) -> None:
        """Commits at once and fences the attempt; the kill follows."""
        state = self._state
        attempt = state.current.get(key)
        if attempt is None:
            self._end_waiting(key, block, index, TaskStep.CANCEL, reason, error, now)
            return
        state.send(attempt.worker.peer, Kill([attempt.id]))
        self._table.remove(attempt, AttemptStep.CANCEL, TaskStep.CANCEL)
        nothing = Outcome(attempt.id, block.job.number, index, "cancelled")
        self._ending.task(attempt, nothing, TaskState.CANCELLED, now, reason)

    def miss_deadline(self, key: TaskKey, block: Block, index: int, now: float) -> None:
        """A task that waits, and must not any more."""
        error = "its deadline passed while it waited"
        self._end_waiting(key, block, index, TaskStep.FAIL, DEADLINE, error, now)

    def _end_waiting(
        self,
        key: TaskKey,
        block: Block,
        index: int,
        step: TaskStep,
        reason: str,
        error: str,
        now: float,
    ) -> None:
        taken = self._state.backoff.remove(key, block) or self._take_from_queue(block, index)
        assert taken, "a task that is neither out nor ended must wait somewhere"
        self._ending.waiting(key, block, index, TASK[TaskState.QUEUED, step], reason, error, now)
        queue = self._state.queues.get(block.group.shape)
        if queue is not None:
            self._state.touch(queue)  # it may have been the last of its shape

    def _take_from_queue(self, block: Block, index: int) -> bool:
        if block.is_held_back:
            self._state.held_back -= 1
            return block.take_one(index)
        return self._queue(block).take_one(block, index)

    def _back_off(self, attempt: Attempt, delay: float, reason: str, now: float) -> None:
        state = self._state
        waiting = Waiting(attempt.key, attempt.block, attempt.index)
        state.backoff.add(waiting, now + delay)
        self._tell_delay(attempt, reason, delay, now)
        if attempt.block.group.specification.work.driver == "model":
            state.emit(TaskStreamed(attempt.job.id, attempt.index, attempt.number, b""))

    def _tell_delay(self, attempt: Attempt, reason: str, delay: float, now: float) -> None:
        self._state.tell(
            "task.delayed",
            now,
            attempt.job,
            attempt.index,
            attempt.worker.peer,
            attempt=attempt.number,
            reason=reason,
            next_try_seconds=round(delay, 3),
        )

    def _requeue(self, attempt: Attempt, now: float) -> None:
        queue = self._queue(attempt.block)
        queue.give_back(Waiting(attempt.key, attempt.block, attempt.index))
        self._state.touch(queue)
        if self._state.is_past_deadline(attempt.block.group.specification, now):
            self.miss_deadline(attempt.key, attempt.block, attempt.index, now)

    def backed_off(self, now: float) -> None:
        for waiting in self._state.backoff.take_due(now):
            queue = self._queue(waiting.block)
            queue.give_back(waiting)
            self._state.touch(queue)
            if self._state.is_past_deadline(waiting.block.group.specification, now):
                self.miss_deadline(waiting.key, waiting.block, waiting.index, now)

    def _queue(self, block: Block) -> ShapeQueue:
        return self._state.queue_of(block.group.shape)
