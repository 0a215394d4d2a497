"""What a scheduler writes down: the entries of its journal.

The journal is the truth. A queued task has no entry of its own, it is arithmetic over its
block; an attempt's start is not written, its end is. Everything that a scheduler tells
anybody leaves only after the entries before it are on disk.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from .identifiers import AttemptId, JobId, JobNumber, LeaseId, PeerId
from .model.failures import STORE_FAULT
from .ranges import (
    MANY,
    REASON_CHARACTERS_MAX,
    Addresses,
    Amount,
    Count,
    Data,
    Digest,
    ExitCode,
    Finite,
    Index,
    JournalText,
    LongData,
    Moment,
    Name,
    Ordinal,
    Reason,
    Size,
    Word,
    bounded,
)


class JobOpened(msgspec.Struct, frozen=True):
    job: JobNumber
    id: JobId
    name: Name
    user: Name
    specification: LongData
    """`core.jobs.Specification` of its first group, encoded; most jobs have no other."""
    created_at: Moment
    """Unix time, like every `…_at` in the journal."""
    idempotency_key: JournalText = ""
    """Scoped by the API to user and route; empty if the client sent none."""
    body_digest: Digest = b""
    """Of the request that opened it: the same id or key with another body is refused."""
    stages: LongData = b""
    """`core.stages.Stage`s, encoded; nothing for a job without any."""


class GroupAdded(msgspec.Struct, frozen=True):
    """A further group of a job's tasks; the first one stands in `JobOpened`."""

    job: JobNumber
    group: Ordinal
    """1, 2, …"""
    stage: Count
    specification: LongData


class BlockAppended(msgspec.Struct, frozen=True):
    """One batch of tasks: `count` of them, from index `first` on."""

    job: JobNumber
    batch: Ordinal
    """0, 1, 2, …: a batch that comes again is recognised by it."""
    first: Index
    count: Index
    arguments: LongData
    """A JSON array with one element per task, or nothing if they have none."""
    owner_epoch: Size
    appended_at: Moment
    group: Ordinal = 0
    digest: Digest = b""
    """Of the arguments of a batch that a client numbered, to tell it from another one."""


class JobClosed(msgspec.Struct, frozen=True):
    """No further batch will come."""

    job: JobNumber


class JobEnded(msgspec.Struct, frozen=True):
    job: JobNumber
    state: Word
    ended_at: Moment


class JobsPruned(msgspec.Struct, frozen=True):
    """These jobs, their blocks, results and attempts are forgotten."""

    jobs: Annotated[tuple[JobNumber, ...], MANY]


class TaskEnded(msgspec.Struct, frozen=True):
    """A task's one terminal state. Its last attempt ends with it.

    The transaction refuses it unless the block's owner epoch is `owner_epoch`, the task is
    not terminal yet, and `attempt` is above the task's highest ended attempt (or none).
    """

    job: JobNumber
    index: Index
    owner_epoch: Size
    state: Word
    """`succeeded`, `failed` or `cancelled`"""
    reason: Reason
    """Why it was cancelled; of a failed one `deadline` or `poison`; else empty."""
    attempt: AttemptId | None
    """None if it was cancelled before anything was sent."""
    attempt_state: Word
    number: Ordinal
    """The attempt's number as users see it; 0 if there was none."""
    worker: PeerId | None
    exit_code: ExitCode | None
    value: LongData
    digest: Digest
    error: JournalText
    stdout: Data
    stderr: Data
    started_at: Moment | None
    ended_at: Moment
    value_size: Size = 0
    """Not 0 if the value is in a file: `value` is empty then."""
    cost: Finite = 0.0
    """Of all its attempts together."""
    progress: Data = b""
    """JSON: what it reported last; empty if it never did."""
    code: Word = ""
    """Why its last attempt failed, see `core.model.failures`."""


class PartKept(msgspec.Struct, frozen=True):
    """A piece of a value that is too long for a row. The first one starts the value anew; they
    count only once a `TaskEnded` says how many bytes they are."""

    job: JobNumber
    index: Index
    attempt: AttemptId
    offset: Size
    data: Data


class AttemptEnded(msgspec.Struct, frozen=True):
    """An attempt that ended and left its task unfinished; refused on an old owner epoch."""

    job: JobNumber
    index: Index
    owner_epoch: Size
    attempt: AttemptId
    state: Word
    counts: bool
    """Whether it uses up one of the attempts that the task is allowed."""
    number: Ordinal
    worker: PeerId
    exit_code: ExitCode | None
    error: JournalText
    started_at: Moment | None
    ended_at: Moment
    cause: Word = ""
    """`Cause` of an end that counts: what in a row marks a poison task."""
    cost: Finite = 0.0
    code: Word = ""
    """Why it failed, see `core.model.failures`."""


class LeaseGranted(msgspec.Struct, frozen=True):
    """A worker has registered: it may be booked, and may run something after a restart."""

    worker: PeerId
    lease: LeaseId
    addresses: Addresses
    """Where the worker was reached: after a restart it is dialled there."""


class LeaseEnded(msgspec.Struct, frozen=True):
    worker: PeerId
    lease: LeaseId
    reason: JournalText


class WorkerMeasured(msgspec.Struct, frozen=True):
    """A worker's health, written now and then; the last one counts."""

    worker: PeerId
    succeeded: Amount
    failed: Amount
    busy_seconds: Finite
    consecutive_failures: Ordinal
    last_seen_at: Moment | None


class ProfileSeen(msgspec.Struct, frozen=True):
    """The most that tasks of this kind were seen to use; written when it grows."""

    kind: Name
    memory: Size
    cpu_cores: Count
    seen_at: Moment


class WorkersForgotten(msgspec.Struct, frozen=True):
    """The health of these workers is kept no longer."""

    workers: Annotated[tuple[PeerId, ...], MANY]


Entry = (
    JobOpened
    | GroupAdded
    | BlockAppended
    | JobClosed
    | JobEnded
    | JobsPruned
    | TaskEnded
    | AttemptEnded
    | LeaseGranted
    | LeaseEnded
    | WorkerMeasured
    | WorkersForgotten
    | PartKept
    | ProfileSeen
)


class EntryRefused(msgspec.Struct, frozen=True):
    """An entry that the journal did not take, for a value of its own or because it contradicts
    what is there. The others of its group are on disk."""

    entry: Entry
    error: str
    instead: TaskEnded | None = None
    """What the journal says of the task now."""


def unstorable(ended: TaskEnded, error: str) -> TaskEnded:
    """The end of a task whose own cannot be stored: nothing of what it brought is in it."""
    return TaskEnded(
        job=ended.job,
        index=ended.index,
        owner_epoch=ended.owner_epoch,
        state="failed",
        reason=STORE_FAULT,
        attempt=None,
        attempt_state="",
        number=0,
        worker=None,
        exit_code=None,
        value=b"",
        digest=b"",
        error=bounded(f"its end could not be stored: {error}", REASON_CHARACTERS_MAX),
        stdout=b"",
        stderr=b"",
        started_at=None,
        ended_at=ended.ended_at if math.isfinite(ended.ended_at) else 0.0,
    )


class StoredJob(msgspec.Struct, frozen=True):
    """An unfinished job, or a finished one not yet pruned, as a restart finds it."""

    opened: JobOpened
    closed: bool
    state: str
    """Empty while it has not ended."""
    ended_at: float | None


class StoredBlock(msgspec.Struct, frozen=True):
    appended: BlockAppended
    succeeded: bytes
    """Bitmaps over the block, bit i of byte i // 8 for the task first + i."""
    failed: bytes
    cancelled: bytes


class HandedResult(msgspec.Struct, frozen=True):
    """What a task of a stage gave that other stages of its unfinished job ask for."""

    job: JobNumber
    index: int
    value: bytes
    stdout: bytes


class Restored(msgspec.Struct, frozen=True):
    """All that a scheduler needs of its journal to go on."""

    jobs: list[StoredJob]
    groups: list[GroupAdded]
    """By job and number."""
    blocks: list[StoredBlock]
    """In the order in which they were appended."""
    ended_attempts: list[AttemptEnded]
    """Of tasks that are not terminal."""
    leases: list[LeaseGranted]
    """That have not ended."""
    last_job: int
    """The highest job number ever used, whether that job is still there or not."""
    tasks_succeeded: int
    """Totals since the journal began, pruned ones included: counters must not fall."""
    tasks_failed: int
    tasks_cancelled: int
    health: list[WorkerMeasured] = []
    handed: list[HandedResult] = []
    """By job and index; of a stage at most a little more than what may be handed on."""
    file_bytes: dict[JobNumber, int] = {}
    """Of values in files, by job."""
    profiles: list[ProfileSeen] = []
    """By kind."""
