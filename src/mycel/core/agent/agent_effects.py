"""What the agent wants done, in order: nothing may happen before the records ahead of it are on
disk. `Effect` is all of it."""

from __future__ import annotations

import msgspec

from .attempts import AttemptName, Outcome
from .batch_jobs import BatchState, ClusterJob
from .bids import Bid


class Intended(msgspec.Struct, frozen=True, tag=True):
    """From here on a copy may be anywhere."""

    attempt: AttemptName
    job: ClusterJob


class Closing(msgspec.Struct, frozen=True, tag=True):
    attempt: AttemptName
    cause: str
    text: str = ""


class Ended(msgspec.Struct, frozen=True, tag=True):
    attempt: AttemptName
    job: ClusterJob
    outcome: Outcome


class Forgotten(msgspec.Struct, frozen=True, tag=True):
    attempt: AttemptName


Entry = Intended | Closing | Ended | Forgotten


class Record(msgspec.Struct, frozen=True):
    entry: Entry


class Submit(msgspec.Struct, frozen=True):
    """Answered by SubmitAnswered."""

    attempt: AttemptName
    job: ClusterJob


class CancelJobs(msgspec.Struct, frozen=True):
    """Whatever the batch system has of it. A failure is not told: the next look shows it."""

    attempt: AttemptName


class SeeQueue(msgspec.Struct, frozen=True):
    """Answered by QueueSeen or QueueUnseen."""

    look: int


class SeeShare(msgspec.Struct, frozen=True):
    """Answered by ShareSeen or ShareFailed. It has to be read after the queue that made us ask."""

    attempt: AttemptName
    job: ClusterJob


class Fence(msgspec.Struct, frozen=True):
    """Answered by FenceUp or ShareFailed."""

    attempt: AttemptName
    job: ClusterJob


class Remove(msgspec.Struct, frozen=True):
    """What it left in the shared folder, but for the claims."""

    attempt: AttemptName
    job: ClusterJob


class Report(msgspec.Struct, frozen=True):
    attempt: AttemptName
    job: ClusterJob
    outcome: Outcome


class Progress(msgspec.Struct, frozen=True):
    attempt: AttemptName
    state: BatchState
    reason: str


class Listing(msgspec.Struct, frozen=True):
    """All that we have, for the origin to say what of it still counts."""

    number: int
    attempts: tuple[AttemptName, ...]


class AskStart(msgspec.Struct, frozen=True):
    """Answered by Estimated."""

    question: int
    job: ClusterJob


class AnswerBid(msgspec.Struct, frozen=True):
    question: int
    bid: Bid


Effect = (
    Record | Submit | CancelJobs | SeeQueue | SeeShare | Fence | Remove | Report | Progress
    | Listing | AskStart | AnswerBid
)  # fmt: skip
