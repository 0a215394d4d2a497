"""What workers say of their tasks, their leases and themselves."""

from __future__ import annotations

from mycel.core import messages
from mycel.core.effects import TaskStreamed, TaskWrote
from mycel.core.identifiers import AttemptId, LeaseId
from mycel.core.scheduler.records import Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.attempts import Attempts
from mycel.core.scheduler.tasks.leases import Leasing
from mycel.core.scheduler.tasks.result_fetches import Fetches

from .worker_index import Roster


class Hearing:
    def __init__(
        self, state: State, attempts: Attempts, fetches: Fetches, leasing: Leasing, roster: Roster
    ) -> None:
        self._state = state
        self._attempts = attempts
        self._fetches = fetches
        self._leasing = leasing
        self._roster = roster

    def results(
        self, worker: Worker, message: messages.Results, arrived_at: float, now: float
    ) -> None:
        offset = arrived_at - message.clock
        failed = self._attempts.failed_by_driver(worker, message.outcomes)
        self._fetches.outcomes(worker, message.outcomes, offset, now)
        self._attempts.windows(worker, message.windows)
        for queue in failed:
            self._leasing.shun(worker, queue, now)

    def started(
        self, worker: Worker, message: messages.Started, arrived_at: float, now: float
    ) -> None:
        offset = arrived_at - message.clock
        started = [(attempt, when + offset) for attempt, when in message.attempts]
        self._attempts.started(worker, started, now)
        self._attempts.windows(worker, message.windows)

    def streamed(
        self, worker: Worker, message: messages.Streamed, arrived_at: float, now: float
    ) -> None:
        for attempt_id, piece in message.pieces:
            attempt = worker.attempts.get(attempt_id)
            if attempt is not None:
                self._state.emit(TaskStreamed(attempt.job.id, attempt.index, attempt.number, piece))

    def written(
        self, worker: Worker, message: messages.Written, arrived_at: float, now: float
    ) -> None:
        for text in message.texts:
            attempt = worker.attempts.get(text.attempt)
            if attempt is not None:
                place = (attempt.job.id, attempt.index, attempt.number)
                self._state.emit(TaskWrote(*place, text.stream, text.offset, text.data))

    def returned(
        self, worker: Worker, message: messages.Returned, arrived_at: float, now: float
    ) -> None:
        self._attempts.windows(worker, message.windows)
        self._give_back(worker, message.attempts, now, message.reason)

    def accepted(
        self, worker: Worker, message: messages.Accepted, arrived_at: float, now: float
    ) -> None:
        lease = worker.leases.get(message.lease)
        if lease is not None:
            self._leasing.accepted(lease, message.first)

    def refused(
        self, worker: Worker, message: messages.Refused, arrived_at: float, now: float
    ) -> None:
        self._over(worker, message.lease, message.reason)
        numbers = range(message.first, message.first + message.count)
        self._give_back(worker, [one for one in worker.attempts if one in numbers], now)

    def _give_back(
        self, worker: Worker, attempts: list[AttemptId], now: float, reason: str = ""
    ) -> None:
        for attempt_id in attempts:
            attempt = worker.attempts.get(attempt_id)
            if attempt is not None:
                self._attempts.give_back(attempt, now, reason)

    def lease_over(
        self, worker: Worker, message: messages.LeaseOver, arrived_at: float, now: float
    ) -> None:
        self._over(worker, message.lease, message.reason)

    def _over(self, worker: Worker, lease_id: LeaseId, reason: str) -> None:
        lease = worker.leases.get(lease_id)
        if lease is not None:
            self._leasing.over(lease, reason)

    def wanted(
        self, worker: Worker, message: messages.Wanted, arrived_at: float, now: float
    ) -> None:
        for lease_id in (message.lease, *message.others):
            lease = worker.leases.get(lease_id)
            if lease is not None:
                self._leasing.wanted(lease, message, now)

    def load_changed(
        self, worker: Worker, message: messages.LoadChange, arrived_at: float, now: float
    ) -> None:
        free = message.applied_to(worker.free)
        load = messages.Load(
            free, message.running, message.accepting, message.closed_for, message.usage
        )
        self.load(worker, load, arrived_at, now)

    def load(self, worker: Worker, message: messages.Load, arrived_at: float, now: float) -> None:
        opened = message.accepting and not worker.accepting
        worker.accepting, worker.closed_for = message.accepting, message.closed_for
        worker.facts["load"] = ("link", arrived_at)
        gained = self._roster.reported(worker, message.free, message.running, message.usage)
        self._roster.stands(worker)
        if gained or opened:
            self._leasing.news(worker)
