"""What is taken back from workers: of those that are quarantined, and what is held too long."""

from __future__ import annotations

from mycel.core.messages import Kill
from mycel.core.model.failures import HELD_TOO_LONG
from mycel.core.model.work import SERVICE
from mycel.core.scheduler.records import Attempt, Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.attempts import Attempts
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue

from .breaker import HELD_SECONDS_MIN, held_seconds_max
from .guard import Guard


class Recalls:
    def __init__(self, state: State, guard: Guard, attempts: Attempts) -> None:
        self._state = state
        self._guard = guard
        self._attempts = attempts

    def recall(self, worker: Worker, now: float) -> None:
        """It was quarantined: what it has not started goes elsewhere."""
        waiting = [one for one in worker.attempts.values() if one.started_at is None]
        if waiting:
            self._state.send(worker.peer, Kill([attempt.id for attempt in waiting]))
        for attempt in waiting:
            self._attempts.lose(attempt, False, "its worker was quarantined", now)

    def held_due(self, key: object, now: float) -> None:
        """Ends attempts that take ten times as long as nearly all such tasks do elsewhere. A task
        ends so once: should it be one that takes long, its next attempt has the time."""
        limits: dict[ShapeQueue, float | None] = {}
        for worker in list(self._state.workers.values()):
            for attempt in self._too_long(worker, limits, now):
                limit = held_seconds_max(worker.peer, attempt.slots.queue.usual.ends)
                if limit is not None and now - attempt.sent_at > limit:
                    self._give_up(worker, attempt, limit, now)
        self._guard.held_looked_at(now)

    def _too_long(
        self, worker: Worker, limits: dict[ShapeQueue, float | None], now: float
    ) -> list[Attempt]:
        """Those that seem to be, by what all workers take together."""
        found = []
        for attempt in worker.attempts.values():
            held = now - attempt.sent_at
            if held <= HELD_SECONDS_MIN:
                break  # they are in the order in which they were sent
            if attempt.started_at is None or self._was_given_up(attempt):
                continue
            queue = attempt.slots.queue
            if queue not in limits:
                limits[queue] = held_seconds_max(None, queue.usual.ends)
            limit = limits[queue]
            if limit is not None and held > limit:
                found.append(attempt)
        return found

    def _was_given_up(self, attempt: Attempt) -> bool:
        if attempt.block.group.specification.work.driver == SERVICE:
            return True  # it is to run for ever
        history = self._state.histories.get(attempt.key, ())
        return any(ended.code == HELD_TOO_LONG for ended in history)

    def _give_up(self, worker: Worker, attempt: Attempt, limit: float, now: float) -> None:
        self._state.send(worker.peer, Kill([attempt.id]))
        reason = (
            f"its worker held it for {now - attempt.sent_at:.1f} s, "
            f"ten times as long as such tasks take elsewhere ({limit / 10.0:.1f} s)"
        )
        self._attempts.lose(attempt, True, reason, now, HELD_TOO_LONG)
