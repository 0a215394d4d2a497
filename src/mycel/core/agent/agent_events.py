"""What the agent is told. `Event` is all of it."""

from __future__ import annotations

import msgspec

from .attempts import AttemptName, ElementSeen
from .batch_jobs import BatchEntry, BatchFailure, Capacity, ClusterJob, Estimate


class Assigned(msgspec.Struct, frozen=True):
    """The origin gives a job. It may say so twice, and late."""

    attempt: AttemptName
    job: ClusterJob


class Cancel(msgspec.Struct, frozen=True):
    attempt: AttemptName


class Acknowledged(msgspec.Struct, frozen=True):
    """The origin has the outcome, and whatever it wants of the files."""

    attempt: AttemptName


class Connected(msgspec.Struct, frozen=True):
    """The origin can be reached (again)."""


class Renewed(msgspec.Struct, frozen=True):
    """The origin renews our lease, and echoes our own clock: an old message extends nothing."""

    sent_at: float


class Confirmed(msgspec.Struct, frozen=True):
    """Which attempts of our list with this number the origin still counts on."""

    listing: int
    current: frozenset[AttemptName]


class SubmitAnswered(msgspec.Struct, frozen=True):
    """`failure` is None if the batch system took it."""

    attempt: AttemptName
    failure: BatchFailure | None = None
    text: str = ""


class QueueSeen(msgspec.Struct, frozen=True):
    look: int
    entries: tuple[BatchEntry, ...]
    capacity: Capacity


class QueueUnseen(msgspec.Struct, frozen=True):
    look: int
    failure: BatchFailure
    text: str


class ShareSeen(msgspec.Struct, frozen=True):
    attempt: AttemptName
    elements: tuple[ElementSeen, ...]


class FenceUp(msgspec.Struct, frozen=True):
    """`won`: the elements that had not begun, and never will."""

    attempt: AttemptName
    won: frozenset[int]


class ShareFailed(msgspec.Struct, frozen=True):
    """The shared folder could not be asked, or the fence not be put up. Nothing is known."""

    attempt: AttemptName


class Asked(msgspec.Struct, frozen=True):
    """Somebody wants to know when a job would start here."""

    question: int
    job: ClusterJob


class Estimated(msgspec.Struct, frozen=True):
    """`estimate` is None if the batch system could not say."""

    question: int
    estimate: Estimate | None


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed."""


Event = (
    Assigned | Cancel | Acknowledged | Connected | Renewed | Confirmed | SubmitAnswered
    | QueueSeen | QueueUnseen | ShareSeen | FenceUp | ShareFailed | Asked | Estimated | Ticked
)  # fmt: skip
