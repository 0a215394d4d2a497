"""What workers say of their tasks and of themselves."""

from __future__ import annotations

from mycel.core import messages
from mycel.core.effects import TaskStreamed, TaskWrote
from mycel.core.identifiers import AttemptId
from mycel.core.messages.refusals import LEASE_OVER, Scope, scope_of
from mycel.core.scheduler.records import Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.attempts import Attempts
from mycel.core.scheduler.tasks.result_fetches import Fetches
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue
from mycel.core.states import LeaseStep

from .exclusions import Exclusions
from .registrations import Registrations
from .slot_books import SlotBooks
from .worker_index import Roster


class Hearing:
    def __init__(
        self,
        state: State,
        attempts: Attempts,
        fetches: Fetches,
        books: SlotBooks,
        exclusions: Exclusions,
        registrations: Registrations,
        roster: Roster,
    ) -> None:
        self._state = state
        self._attempts = attempts
        self._fetches = fetches
        self._books = books
        self._exclusions = exclusions
        self._registrations = registrations
        self._roster = roster

    def results(
        self, worker: Worker, message: messages.Results, arrived_at: float, now: float
    ) -> None:
        offset = arrived_at - message.clock
        failed = self._attempts.failed_by_driver(worker, message.outcomes)
        self._fetches.outcomes(worker, message.outcomes, offset, now)
        self._attempts.windows(worker, message.windows)
        for queue in failed:
            self._leave_out(worker, queue, now)

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

    def _leave_out(self, worker: Worker, queue: ShapeQueue, now: float) -> None:
        """Its driver has failed such a task: a server that is down would fail them all, and the
        quicker the more it gets. Others have them for a while, if there are any."""
        pool, member = self._state.pool, worker.member
        if member is None:
            return
        others = pool.eligible(queue.shape) & pool.available & ~(1 << member.slot)
        if others:
            wait = self._state.settings.ask_again_seconds_max
            reason = "it has just failed such a task"
            self._exclusions.add(worker, queue.shape, reason, wait, now)

    def accepted(
        self, worker: Worker, message: messages.Accepted, arrived_at: float, now: float
    ) -> None:
        while worker.unaccepted and worker.unaccepted[0][0] <= message.first:
            worker.unaccepted.popleft()

    def unconfirmed(self, worker: Worker, now: float) -> None:
        """Withdraws assignments that were not acknowledged in time."""
        patience = self._state.settings.health_check_timeout
        overdue: list[AttemptId] = []
        while worker.unaccepted and worker.unaccepted[0][2] + patience <= now:
            first, count, _ = worker.unaccepted.popleft()
            numbers = map(AttemptId, range(first, first + count))
            overdue.extend(
                number
                for number in numbers
                if number in worker.attempts and worker.attempts[number].started_at is None
            )
        if overdue and worker.is_healthy:
            self._state.send(worker.peer, messages.Withdraw(overdue))
        if worker.unaccepted:
            due = worker.unaccepted[0][2] + patience
            self._state.timers.set(("accept", worker.peer), due)

    def refused(
        self, worker: Worker, message: messages.Refused, arrived_at: float, now: float
    ) -> None:
        """The worker's ledger and its owner's rules decide; the books follow."""
        named = dict.fromkeys(message.attempts)
        known = [worker.attempts[one] for one in named if one in worker.attempts]
        scope = scope_of(message.code)
        if message.room is not None:
            self._books.set_room(worker, message.room)
        self._attempts.windows(worker, message.windows)
        for attempt in known:
            self._attempts.give_back(attempt, now)
        if not known:
            return
        if scope is Scope.WORKER:
            worker.accepting, worker.closed_for = False, message.reason
            self._roster.stands(worker)
        elif message.code == LEASE_OVER:
            self._registrations.end(worker, LeaseStep.EXPIRE, message.reason)
        for slots in dict.fromkeys(attempt.slots for attempt in known):
            if scope is not Scope.NOW:
                slots.number = 0  # so that its right is shown again
            if scope is Scope.NOW:
                self._exclusions.add_now(worker, slots.shape, message.reason, now)
            elif scope in (Scope.SHAPE, Scope.USER):
                key = slots.shape if scope is Scope.SHAPE else slots.shape.user
                seconds = self._state.settings.ask_again_seconds_max
                self._exclusions.add(worker, key, message.reason, seconds, now)

    def _give_back(
        self, worker: Worker, attempts: list[AttemptId], now: float, reason: str = ""
    ) -> None:
        for attempt_id in attempts:
            attempt = worker.attempts.get(attempt_id)
            if attempt is not None:
                self._attempts.give_back(attempt, now, reason)

    def load_changed(
        self, worker: Worker, message: messages.LoadChange, arrived_at: float, now: float
    ) -> None:
        free = message.applied_to(worker.book.room)
        load = messages.Load(
            free, message.running, message.accepting, message.closed_for, message.usage
        )
        self.load(worker, load, arrived_at, now)

    def load(self, worker: Worker, message: messages.Load, arrived_at: float, now: float) -> None:
        worker.accepting, worker.closed_for = message.accepting, message.closed_for
        worker.facts["load"] = ("link", arrived_at)
        self._roster.stands(worker)
        self._roster.reported(worker, message.free, message.running, message.usage)
