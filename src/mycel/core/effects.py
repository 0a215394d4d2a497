"""What the machines want done. Effects leave in their order.

An effect leaves when every `Record` before it, from any call of `handle`, is on disk; only
those in `OVERTAKING` may go ahead.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.core.model.work import Run, Shape

from .identifiers import AttemptId, JobId, JobNumber, LaneId, PeerId, RequestId
from .journal import Entry
from .messages import (
    Assign,
    CheckpointPart,
    CheckpointTaken,
    ControlMessage,
    Outcome,
    Renew,
    WorkMessage,
)


class Effect(msgspec.Struct, frozen=True):
    """Base of all effects."""


class Record(Effect, frozen=True):
    """Write this to the journal."""

    entries: list[Entry]


class Send(Effect, frozen=True):
    peer: PeerId
    message: WorkMessage | ControlMessage


class SendAhead(Effect, frozen=True):
    """Apart from `Send`, because it does not wait for the disk: renewals, and tasks that nobody
    has been promised yet."""

    peer: PeerId
    message: Renew | Assign


class Dial(Effect, frozen=True):
    peer: PeerId
    addresses: tuple[str, ...]


class Check(Effect, frozen=True):
    """Does this worker, which has no link, still answer? `CheckAnswered` tells, or `DialFailed`,
    or `CheckPutOff`, or nothing."""

    peer: PeerId
    addresses: tuple[str, ...]
    seconds: float
    """When an answer is late."""
    is_thorough: bool = False
    """By a connection, if there is room for one: a knock does not say who answers."""


class Hangup(Effect, frozen=True):
    """This peer broke the protocol, or is believed dead: close its link."""

    peer: PeerId
    reason: str
    is_offence: bool = False
    """It has done what no honest peer does, again and again."""


class Part(Effect, frozen=True):
    """This worker is not needed now: end its link in order. It stays known, and comes back by
    itself after so long, so that it stays known."""

    peer: PeerId
    come_back_seconds: float
    reason: str = ""
    """Why it cannot be of use at all, if it cannot."""


class Seek(Effect, frozen=True):
    """Tasks of this shape wait, and the known workers do not suffice."""

    shape: Shape


class Announce(Effect, frozen=True):
    """Work has come after a time without any: workers should hear of this scheduler."""


class Reply(Effect, frozen=True):
    """The answer to a client's request: a view, a journal entry or a `Refusal`."""

    request: RequestId
    answer: object


class JobsAdvanced(Effect, frozen=True):
    """Tasks of these jobs have ended: who follows them can read on."""

    jobs: list[JobNumber]


class Happening(msgspec.Struct, frozen=True):
    """Something that clients may want to hear of, beside the ends of tasks, which they read
    from the store."""

    kind: str
    """`task.…`, `job.…` or `worker.…`"""
    at: float
    """Unix time."""
    job_id: JobId | None = None
    index: int | None = None
    worker: PeerId | None = None
    user: str = ""
    """Whose job it is."""
    details: dict[str, object] = {}


class Tell(Effect, frozen=True):
    """Only while somebody listens."""

    happenings: list[Happening]


class TaskStreamed(Effect, frozen=True):
    """A task that runs has brought something forth."""

    job_id: JobId
    index: int
    number: int
    """Of the attempt; what an earlier one said is void."""
    piece: bytes
    """Empty: that attempt is lost, and another follows."""


class TaskWrote(Effect, frozen=True):
    """A stretch of what a task that takes long has written; see `messages.Text`."""

    job_id: JobId
    index: int
    number: int
    """Of the attempt."""
    stream: int
    offset: int
    data: bytes


class TaskLeft(Effect, frozen=True):
    """A task that took long has ended."""

    job_id: JobId
    index: int
    has_output: bool
    """All that it wrote is in the journal: nobody needs what was kept of it meanwhile."""


class KeepCheckpoint(Effect, frozen=True):
    """Write this piece to disk, and answer the worker with `CheckpointTaken`."""

    peer: PeerId
    job_id: JobId
    index: int
    part: CheckpointPart


class ReadCheckpoint(Effect, frozen=True):
    """Answer the worker with a `CheckpointPart` of the task's last checkpoint."""

    peer: PeerId
    job_id: JobId
    index: int
    attempt: AttemptId
    offset: int


class JobsForgotten(Effect, frozen=True):
    """The journal has them no more."""

    jobs: list[JobId]


class Note(Effect, frozen=True):
    """Something worth a line in the log."""

    event: str
    fields: dict[str, object]


# A worker's


class RunAttempts(Effect, frozen=True):
    driver: str
    lane: LaneId
    runs: list[Run]


class WithdrawRuns(Effect, frozen=True):
    driver: str
    attempts: list[AttemptId]


class KillRuns(Effect, frozen=True):
    driver: str
    attempts: list[AttemptId]


class CloseLane(Effect, frozen=True):
    driver: str
    lane: LaneId


class CheckpointAnswered(Effect, frozen=True):
    """What a scheduler has said of a checkpoint, of one of this worker's runs."""

    run: AttemptId
    message: CheckpointPart | CheckpointTaken


class SpoolOutcomes(Effect, frozen=True):
    scheduler: PeerId
    outcomes: list[Outcome]


class UnspoolOutcomes(Effect, frozen=True):
    scheduler: PeerId
    attempts: list[AttemptId]


class Emptied(Effect, frozen=True):
    """The worker is to stop, and nothing runs in it any more."""


OVERTAKING: Final = (SendAhead, TaskStreamed)
