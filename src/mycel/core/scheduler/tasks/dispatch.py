"""Sending tasks out, in messages of a sound size. Every sending is a fresh attempt.

A task that came in this very turn leaves before its job is on disk, while that is being
written: its client has no answer yet. Should the scheduler be killed in between, then the worker
runs a task of a job that never was; the next boot uses neither its attempt's number nor its
job's, and tells the worker to drop it.
"""

from __future__ import annotations

from typing import Final

from mycel.core.authenticators import KeyedHash, authenticators, page_of
from mycel.core.effects import SendAhead
from mycel.core.errors import TooLong
from mycel.core.identifiers import AttemptId, ShapeNumber
from mycel.core.messages import MESSAGE_BYTES, Assign, Bundle, Introduce
from mycel.core.model.jobs import Block, task_key
from mycel.core.model.work import work_bytes
from mycel.core.scheduler.attempt_table import AttemptTable
from mycel.core.scheduler.records import Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.workers.slot_books import SlotBooks, Slots
from mycel.core.states import TASK, TaskState, TaskStep

from .attempt_proofs import Authentication
from .completion import Ending

ASSIGN_BYTES_MAX: Final = 15 << 20
"""Of a task that goes alone: below the limit of a frame, with its numbers and names."""


class Sending:
    def __init__(
        self,
        state: State,
        books: SlotBooks,
        table: AttemptTable,
        ending: Ending,
        authentication: Authentication,
    ) -> None:
        self._state = state
        self._books = books
        self._table = table
        self._authentication = authentication
        self._ending = ending

    def send(self, slots: Slots, tasks: list[tuple[Block, int]], now: float) -> None:
        """What has its slots already, in as many messages as the size of the tasks asks for. One
        that fits none fails: it would never get anywhere."""
        part: list[tuple[Block, int, bytes]] = []
        size = shared = 0
        last: Block | None = None
        for block, index in tasks:
            try:
                if last is None or not _share_work(block, last):
                    last, shared = None, work_bytes(block.work)  # which may be too long
                    last = block
                encoded = block.argument(index)
                _check_length(len(encoded) + shared)
            except TooLong as error:
                self._books.ended(slots)
                self._fail(block, index, str(error), now)
                continue
            own = len(encoded)
            if not part or not _share_work(block, part[-1][0]):
                own += shared
            size += own
            if part and size > MESSAGE_BYTES:
                self._send_part(slots, part, now)
                part, size = [], len(encoded) + shared
            part.append((block, index, encoded))
        if part:
            self._send_part(slots, part, now)
        for block, _ in tasks:
            if block.fresh == 0:
                block.forget_items()

    def _fail(self, block: Block, index: int, error: str, now: float) -> None:
        key = task_key(block.job.number, index)
        failed = TASK[TaskState.QUEUED, TaskStep.FAIL]
        self._ending.waiting(key, block, index, failed, "", error, now)

    def _send_part(self, slots: Slots, tasks: list[tuple[Block, int, bytes]], now: float) -> None:
        state, worker = self._state, slots.worker
        registration = worker.registration
        assert registration is not None, "a worker without a registration was booked"
        introduce = None if slots.number else self._introduce(slots)
        first = state.next_attempts(len(tasks))
        attempt_id: int = first
        bundles: list[_Bundling] = []
        bundle: _Bundling | None = None
        last: Block | None = None
        for block, index, argument in tasks:
            if bundle is None or block is not last or page_of(index) != bundle.page:
                last = block
                if bundle is None or not bundle.takes(block, index):
                    bundle = _Bundling(AttemptId(attempt_id), block, index)
                    bundles.append(bundle)
            key = task_key(block.job.number, index)
            attempt = self._table.send(AttemptId(attempt_id), key, block, index, slots, now)
            bundle.indices.append(index)
            bundle.numbers.append(attempt.number)
            if argument:
                bundle.arguments.append(argument)
            if slots.shape.max_cost is not None:
                bundle.spent.append(self._ending.spent(key))
            attempt_id += 1
        if not worker.unaccepted:
            due = now + state.settings.health_check_timeout
            state.timers.set(("accept", worker.peer), due)
        worker.unaccepted.append((first, len(tasks), now))
        assign = Assign(
            registration.id,
            ShapeNumber(slots.number),
            max(1, len(slots.bookings)),
            [self._bundle(one, worker) for one in bundles],
        )
        if introduce is not None:
            state.send(worker.peer, introduce)
        if slots.is_proven and all(state.is_arriving(block.job) for block, _, _ in tasks):
            state.emit(SendAhead(worker.peer, assign))
        else:
            state.send(worker.peer, assign)

    def _introduce(self, slots: Slots) -> Introduce:
        book, registration = slots.worker.book, slots.worker.registration
        assert registration is not None
        book.introduced += 1
        slots.number = book.introduced
        slots.is_proven = False
        usual = slots.queue.usual.seconds or 0.0
        number = ShapeNumber(slots.number)
        return Introduce(registration.id, number, slots.shape, expected_seconds=usual)

    def _bundle(self, made: _Bundling, worker: Worker) -> Bundle:
        block, index = made.block, made.indices[0]
        boot = self._state.boot
        return made.bundle(self._authentication.stream(block, index, boot, worker.peer))


class _Bundling:
    """A bundle while attempts are added to it. One stream has the authenticators of all."""

    __slots__ = ("arguments", "block", "first", "indices", "numbers", "page", "spent")

    def __init__(self, first: AttemptId, block: Block, index: int) -> None:
        self.first = first
        self.block = block
        self.page = page_of(index)
        self.indices: list[int] = []
        self.numbers: list[int] = []
        self.arguments: list[bytes] = []
        self.spent: list[float] = []

    def takes(self, block: Block, index: int) -> bool:
        ours = self.block
        is_like_ours = _share_work(block, ours) and block.owner_epoch == ours.owner_epoch
        return is_like_ours and page_of(index) == self.page

    def bundle(self, source: KeyedHash) -> Bundle:
        block, job = self.block, self.block.job
        return Bundle(
            self.first,
            job.number,
            job.id,
            block.owner_epoch,
            block.work,
            self.indices,
            self.numbers,
            self.arguments,
            authenticators(source, self.first, self.indices),
            self.spent,
        )


def _share_work(one: Block, other: Block) -> bool:
    return one.group is other.group and one.job is other.job


def _check_length(size: int) -> None:
    if size > ASSIGN_BYTES_MAX:
        raise TooLong(
            f"what it runs takes {size:,} bytes; at most {ASSIGN_BYTES_MAX:,} can be sent"
        )
