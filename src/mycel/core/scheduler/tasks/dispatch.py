"""Sending tasks out: what waits goes into the room that leases have.

Idle slots are filled first, wherever they are; only then does anything wait behind another
task. Every sending is a fresh attempt.

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
from mycel.core.identifiers import AttemptId
from mycel.core.messages import MESSAGE_BYTES, Assign, Bundle
from mycel.core.model.jobs import Block, task_key
from mycel.core.model.work import work_bytes
from mycel.core.scheduler.records import Attempt, Lease, Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue
from mycel.core.scheduler.workers.worker_index import Roster
from mycel.core.states import TASK, LeaseState, TaskState, TaskStep

from .attempt_proofs import Authentication
from .completion import Ending

ASSIGN_BYTES_MAX: Final = 15 << 20
"""Of a task that goes alone: below the limit of a frame, with its numbers and names."""


class Sending:
    def __init__(
        self, state: State, roster: Roster, ending: Ending, authentication: Authentication
    ) -> None:
        self._state = state
        self._authentication = authentication
        self._roster = roster
        self._ending = ending

    def fill(self, queue: ShapeQueue, now: float) -> None:
        """Sends what waits into the room that the leases of this shape have."""
        if not queue.waiting:
            return
        leases = [lease for lease in queue.leases.values() if self._is_usable(lease)]
        if not leases:
            return
        # Leases of one slot are many to a worker: among equals one with the next task's files,
        # then the worker with least to do.
        having = self._state.having_next_files(queue) if len(leases) > 1 else 0
        leases.sort(
            key=lambda one: (
                one.outstanding / one.slots,
                not _is_among(one, having),
                len(one.worker.attempts),
                one.key,
            )
        )
        careful = now < queue.careful_until
        # Idle slots first, wherever they are; only then does anything wait behind another.
        limits = [self._slots_to_fill(lease) for lease in leases]
        self._spread(queue, leases, limits, now)
        if queue.waiting:
            limits = [self._window(lease, careful) for lease in leases]
            self._spread(queue, leases, limits, now)

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
        """In as many messages as the size of the tasks asks for. One that fits none fails: it
        would never get anywhere."""
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
                self._fail(block, index, str(error), now)
                continue
            own = len(encoded)
            if not part or not _share_work(block, part[-1][0]):
                own += shared
            size += own
            if part and size > MESSAGE_BYTES:
                self._send_part(lease, part, now)
                part, size = [], len(encoded) + shared
            part.append((block, index, encoded))
        if part:
            self._send_part(lease, part, now)
        for block, _ in tasks:
            if block.fresh == 0:
                block.forget_items()

    def _fail(self, block: Block, index: int, error: str, now: float) -> None:
        key = task_key(block.job.number, index)
        failed = TASK[TaskState.QUEUED, TaskStep.FAIL]
        self._ending.waiting(key, block, index, failed, "", error, now)
        self._state.timers.set(("refill", block.group.shape), now)  # its room is free again

    def _send_part(self, lease: Lease, tasks: list[tuple[Block, int, bytes]], now: float) -> None:
        state, worker = self._state, lease.worker
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
            block.job.live += 1
            attempt_id += 1
        lease.outstanding += len(tasks)
        lease.queue.live += len(tasks)
        lease.unaccepted.append((first, len(tasks), now))
        state.timers.set(("accept", lease.key), now + state.settings.health_check_timeout)
        self._roster.moved(worker)
        assign = Assign(lease.id, [self._bundle(one, worker) for one in bundles])
        if lease.is_proven and all(state.is_arriving(block.job) for block, _, _ in tasks):
            state.emit(SendAhead(worker.peer, assign))
        else:
            state.send(worker.peer, assign)

    def _bundle(self, made: _Bundling, worker: Worker) -> Bundle:
        block, index = made.block, made.indices[0]
        boot = self._state.boot
        return made.bundle(self._authentication.stream(block, index, boot, worker.peer))


class _Bundling:
    """A bundle while attempts are added to it. One stream has the authenticators of all."""

    __slots__ = ("arguments", "block", "first", "indices", "numbers", "page")

    def __init__(self, first: AttemptId, block: Block, index: int) -> None:
        self.first = first
        self.block = block
        self.page = page_of(index)
        self.indices: list[int] = []
        self.numbers: list[int] = []
        self.arguments: list[bytes] = []

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
        )


def _share_work(one: Block, other: Block) -> bool:
    return one.group is other.group and one.job is other.job


def _check_length(size: int) -> None:
    if size > ASSIGN_BYTES_MAX:
        raise TooLong(
            f"what it runs takes {size:,} bytes; at most {ASSIGN_BYTES_MAX:,} can be sent"
        )


def _is_among(lease: Lease, members: int) -> bool:
    member = lease.worker.member
    return member is not None and bool(members >> member.slot & 1)
