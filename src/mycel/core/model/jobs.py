"""Jobs and the blocks of tasks that they consist of.

A task that waits is arithmetic over its block: no row and no object of its own. A block
remembers which of its tasks are *fresh* (never sent, never ended), handing them out in order
from a cursor; whatever leaves out of order (cancelled, adopted after a restart) is marked in a
bitmap that the cursor steps over. A second bitmap knows which tasks have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NewType

import msgspec

from mycel.core.errors import TooLong
from mycel.core.identifiers import JobId, JobNumber
from mycel.core.ranges import Amount, Moment, Priority
from mycel.core.states import JobState, StageState, TaskState

from . import bitmaps
from .resources import Pairs, Requirements
from .stages import Handed, Policy, StageRun
from .sweeps import Sweep
from .task_files import digests_in, mentions_files
from .work import Retry, Shape, Work, shape_of

TaskKey = NewType("TaskKey", int)
"""`job number << 32 | index`"""

_INDEX_BITS = 32
_INDEX_MASK = (1 << _INDEX_BITS) - 1


def task_key(job: JobNumber, index: int) -> TaskKey:
    return TaskKey(job << _INDEX_BITS | index)


def job_of(key: TaskKey) -> JobNumber:
    return JobNumber(key >> _INDEX_BITS)


def index_of(key: TaskKey) -> int:
    return key & _INDEX_MASK


class Specification(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all tasks of a group have in common, as it stands in the journal."""

    work: Work
    requirements: Requirements
    priority: Priority = 0
    retry: Retry = Retry()
    labels: Pairs = ()
    requirements_given: bool = True
    """False if the profile is ours, because the job named no resources."""
    deadline_at: Moment | None = None
    """Unix time. What waits then fails, and nothing is tried again after it."""
    max_cost: Amount | None = None
    """Offers above it are not taken; the unit is the workers'."""
    sweep: Sweep | None = None
    """Where the tasks' arguments come from, if not from their blocks."""


class Group:
    """Tasks of a job that share a specification, and with it their shape.

    It never changes, so that jobs that say the same share it.
    """

    __slots__ = ("shape", "specification", "stage")

    def __init__(self, specification: Specification, shape: Shape, stage: int = 0) -> None:
        self.specification = specification
        self.shape = shape
        self.stage = stage

    @classmethod
    def of(cls, specification: Specification, user: str, stage: int = 0) -> Group:
        work, requirements = specification.work, specification.requirements
        shape = shape_of(work, requirements, user, specification.priority, specification.max_cost)
        return cls(specification, shape, stage)


_arguments_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class Block:
    """`count` tasks of one group, from `first` on."""

    __slots__ = (
        "_items",
        "_taken",
        "arguments",
        "batch",
        "count",
        "cursor",
        "digest",
        "ended",
        "first",
        "fresh",
        "group",
        "handed",
        "job",
        "old",
        "owner_epoch",
    )

    def __init__(
        self,
        job: Job,
        group: Group,
        batch: int,
        first: int,
        count: int,
        arguments: bytes,
        owner_epoch: int,
    ) -> None:
        self.job = job
        self.group = group
        self.batch = batch
        self.first = first
        self.count = count
        self.arguments = arguments
        self.owner_epoch = owner_epoch
        self.cursor = 0
        self.fresh = count
        self.ended = bitmaps.empty(count)
        self.old = False
        """It was there before this boot: its tasks may run somewhere already."""
        self.digest = b""
        self.handed: Handed | None = None
        """What earlier stages gave it, once its own has started."""
        self._taken: bytearray | None = None
        self._items: list[msgspec.Raw] | None = None

    @property
    def stage(self) -> StageRun | None:
        stages = self.job.stages
        return stages[self.group.stage] if stages else None

    @property
    def is_held_back(self) -> bool:
        """Its stage has not started: none of it is in a queue."""
        stage = self.stage
        return stage is not None and stage.state in (StageState.WAITING, StageState.SKIPPED)

    @property
    def work(self) -> Work:
        """What its tasks run."""
        if self.handed is not None:
            return self.handed.work(self.group)
        return self.group.specification.work

    def take(self, limit: int) -> Iterator[int]:
        """Hands out up to `limit` fresh tasks, by index, in order."""
        while limit > 0 and self.fresh > 0:
            position = self.cursor
            self.cursor += 1
            if self._taken is None or not bitmaps.has(self._taken, position):
                self.fresh -= 1
                limit -= 1
                yield self.first + position

    def is_fresh(self, index: int) -> bool:
        position = index - self.first
        if position < self.cursor:
            return False
        return self._taken is None or not bitmaps.has(self._taken, position)

    def fresh_before(self, index: int) -> int:
        """How many of the tasks before it are still to be handed out; cancelled ones are not."""
        before = max(0, index - self.first - self.cursor)
        if self._taken is None or not before:
            return before
        taken = int.from_bytes(self._taken, "little") >> self.cursor
        return before - (taken & (1 << before) - 1).bit_count()

    def take_one(self, index: int) -> bool:
        """Takes this task out of order; False if it is not fresh any more."""
        if not self.is_fresh(index):
            return False
        if self._taken is None:
            self._taken = bitmaps.empty(self.count)
        bitmaps.put(self._taken, index - self.first)
        self.fresh -= 1
        return True

    def restore_ended(self, ended: bytearray) -> None:
        self.ended = ended
        self._taken = bytearray(ended)
        self.fresh = self.count - bitmaps.count(ended)

    def argument(self, index: int) -> bytes:
        """The JSON of one task's arguments; nothing if it has none."""
        if self.arguments:
            if self._items is None:
                self._items = _arguments_decoder.decode(self.arguments)
            found = bytes(self._items[index - self.first])
        elif self.group.specification.sweep is not None:
            found = self.group.specification.sweep.arguments(index)
        else:
            return b""
        return found if self.handed is None else self.handed.arguments(found)

    def files_of(self, index: int) -> list[str]:
        """Digests of the files that a task names, in its job or in its arguments."""
        named = self.group.specification.work.digests
        try:
            argument = self.argument(index)
        except TooLong:  # told when it is sent
            return named
        return named + digests_in(argument) if mentions_files(argument) else named

    @property
    def is_over(self) -> bool:
        """All of its tasks have ended; its arguments may be gone then."""
        return bitmaps.count(self.ended) == self.count

    def forget_arguments(self) -> None:
        """Nobody will run any of it again."""
        self.arguments = b""
        self._items = None

    def forget_items(self) -> None:
        """Everything was handed out: what is left in the blob is enough for a retry."""
        self._items = None


class Job:
    __slots__ = (
        "blocks",
        "body_digest",
        "cancelled",
        "cancelling",
        "closed",
        "count",
        "created_at",
        "ended_at",
        "failed",
        "file_bytes",
        "groups",
        "id",
        "idempotency_key",
        "live",
        "name",
        "number",
        "stages",
        "state",
        "succeeded",
        "user",
    )

    def __init__(
        self,
        number: JobNumber,
        job_id: JobId,
        name: str,
        user: str,
        groups: tuple[Group, ...],
        created_at: float,
    ) -> None:
        self.number = number
        self.id = job_id
        self.name = name
        self.user = user
        self.groups = groups
        self.stages: list[StageRun] = []
        """None, unless the job is a graph of several."""
        self.created_at = created_at
        self.ended_at: float | None = None
        self.idempotency_key = ""
        self.body_digest = b""
        self.blocks: list[Block] = []
        self.closed = False
        self.cancelling = False
        self.count = 0
        self.live = 0
        """Tasks that are leased or running."""
        self.succeeded = 0
        self.failed = 0
        self.cancelled = 0
        self.file_bytes = 0
        """Of its results that are in files."""
        self.state: JobState | None = None
        """Set once it has ended."""

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled

    @property
    def shown_state(self) -> JobState:
        if self.state is not None:
            return self.state
        return JobState.RUNNING if self.live or self.ended else JobState.QUEUED

    @property
    def is_through(self) -> bool:
        return self.closed and self.ended == self.count

    def final_state(self) -> JobState:
        ignored = [run for run in self.stages if run.stage.policy is Policy.IGNORE]
        if self.failed > sum(run.failed for run in ignored):
            return JobState.FAILED
        cancelled = self.cancelled > sum(run.cancelled for run in ignored)
        return JobState.CANCELLED if cancelled else JobState.SUCCEEDED

    def append(
        self, group: int, batch: int, count: int, arguments: bytes, owner_epoch: int
    ) -> Block:
        block = Block(self, self.groups[group], batch, self.count, count, arguments, owner_epoch)
        self.blocks.append(block)
        self.count += count
        if self.stages:
            stage = self.stages[block.group.stage]
            stage.blocks.append(block)
            stage.count += count
        return block

    def block_of(self, index: int) -> Block | None:
        """The block that holds this task."""
        low, high = 0, len(self.blocks)
        while low < high:
            middle = (low + high) // 2
            block = self.blocks[middle]
            if index < block.first:
                high = middle
            elif index >= block.first + block.count:
                low = middle + 1
            else:
                return block
        return None

    def end_task(self, block: Block, index: int, state: TaskState) -> None:
        position = index - block.first
        assert not bitmaps.has(block.ended, position), "a task ended twice"
        bitmaps.put(block.ended, position)
        if state is TaskState.SUCCEEDED:
            self.succeeded += 1
        elif state is TaskState.FAILED:
            self.failed += 1
        else:
            self.cancelled += 1
        if self.stages:
            self.stages[block.group.stage].count_end(state)

    def is_ended(self, block: Block, index: int) -> bool:
        return bitmaps.has(block.ended, index - block.first)
