"""One attempt of a job on a cluster, from its assignment to the day it is forgotten.

    waiting ─ accept ─▶ intended ─ arrive ─▶ submitted ─ finish ─▶ ended ─ forget
       │                   │ ▲                  │ │ ▲                ▲
       │                   │ └──── vanish ──────┘ │ └─ reopen ─┐     │
       │                   └──── close ───────────┴──────▶ closing ─ finish
       └──────────────────────── finish ─────────────────────────────┘

`NEXT` is the specification: a pair that it does not list is a bug of ours. From `intended` on,
an attempt is in the journal, and a copy of it may be anywhere.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NewType

import msgspec

from .batch_jobs import BatchState, ClusterJob

AttemptName = NewType("AttemptName", str)
"""Never used twice, so that it can be a claim. Letters, digits, '-' and '_': a folder's name, and
a part of the name that the batch system knows."""
NAME_LENGTH_MAX: Final = 100
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def is_attempt_name(text: str) -> bool:
    return 0 < len(text) <= NAME_LENGTH_MAX and text[0] not in "-_" and _NAME.issuperset(text)


class AttemptState(Enum):
    WAITING = "waiting"
    """Assigned, and not accepted. The journal knows nothing of it."""
    INTENDED = "intended"
    """Journalled; its submission is under way, or is due again later."""
    SUBMITTED = "submitted"
    """A copy may be in the batch system. Whether one is, the queue and the folder say."""
    CLOSING = "closing"
    """No further copy shall begin; what has begun is ended, or goes on, as the cause says."""
    ENDED = "ended"
    """Its outcome is in the journal, and is reported until somebody acknowledges it."""


class Step(Enum):
    ACCEPT = "accept"
    ARRIVE = "arrive"
    VANISH = "vanish"
    CLOSE = "close"
    REOPEN = "reopen"
    FINISH = "finish"


NEXT: Final[dict[tuple[AttemptState, Step], AttemptState]] = {
    (AttemptState.WAITING, Step.ACCEPT): AttemptState.INTENDED,
    (AttemptState.WAITING, Step.FINISH): AttemptState.ENDED,
    (AttemptState.INTENDED, Step.ARRIVE): AttemptState.SUBMITTED,
    (AttemptState.INTENDED, Step.CLOSE): AttemptState.CLOSING,
    (AttemptState.SUBMITTED, Step.VANISH): AttemptState.INTENDED,
    (AttemptState.SUBMITTED, Step.CLOSE): AttemptState.CLOSING,
    (AttemptState.SUBMITTED, Step.FINISH): AttemptState.ENDED,
    (AttemptState.CLOSING, Step.REOPEN): AttemptState.SUBMITTED,
    (AttemptState.CLOSING, Step.FINISH): AttemptState.ENDED,
}


class WrongStep(Exception):
    """Our own fault: a step that the table does not allow."""

    def __init__(self, attempt: Attempt, step: Step) -> None:
        super().__init__(f"attempt {attempt.name} is {attempt.state.value}: no {step.value}")


class ElementSeen(msgspec.Struct, frozen=True):
    """What the shared folder says of one element."""

    claimed: bool
    """It has begun. Only one copy ever does."""
    exit_code: int | None = None
    """None: it has not ended, or was killed before it could say so."""


class Cause(Enum):
    """Why an attempt ended as it did, where its exit codes do not say it."""

    NONE = ""
    CANCELLED = "cancelled"
    """Its origin wanted so."""
    OUTDATED = "outdated"
    """While we could not be reached, its origin gave the job to somebody else."""
    LEASE_ENDED = "lease_ended"
    """Nobody renewed our lease, so nothing new may begin."""
    IMPATIENT = "impatient"
    """It waited here longer than the agent lets jobs wait."""
    FULL = "full"
    """Too much waits here already."""
    REFUSED = "refused"
    """The batch system will never take it."""
    HOPELESS = "hopeless"
    """It waited in the batch system for something that will not come."""
    VANISHED = "vanished"
    """The batch system lost it again and again."""
    SITE = "site"
    """The batch system ended it before it began."""
    KILLED = "killed"
    """It began and was ended; the batch system says how, in the outcome's state."""

    @property
    def kills(self) -> bool:
        """Also what has begun."""
        return self in (Cause.CANCELLED, Cause.OUTDATED)


class OutcomeState(Enum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    PREEMPTED = "preempted"
    PARTIAL = "partial"
    """Some elements have ended; the others have not begun and never will."""
    LOST = "lost"
    """It began, and nobody knows how it ended."""
    CANCELLED = "cancelled"
    RETURNED = "returned"
    """Nothing of it has begun or ever will; it counts as no failure."""


class Outcome(msgspec.Struct, frozen=True):
    state: OutcomeState
    cause: Cause = Cause.NONE
    exit_codes: tuple[int | None, ...] = ()
    """Of each element; None for one that did not end by itself."""
    text: str = ""
    """What the batch system said, for people."""


class Attempt(msgspec.Struct):
    """Only the machine changes it, and its state only by `take`."""

    name: AttemptName
    job: ClusterJob
    state: AttemptState
    since: float
    """When it came into its state."""
    assigned_at: float
    cause: Cause = Cause.NONE
    text: str = ""
    outcome: Outcome | None = None
    shown: BatchState | None = None
    """What was last told of it."""
    ended_as: frozenset[BatchState] = frozenset()
    """How copies of it ended, as the last look at the queue had it."""
    judged_after: int = 0
    """Looks at the queue up to this one began too early to say anything of it."""
    submissions: int = 0
    submit_at: float | None = None
    """None while a submission is under way."""
    settling_since: float | None = None
    fenced: frozenset[int] | None = None
    """Elements that will never begin. None: no fence was put up."""
    asks_share: bool = False
    needs_fence: bool = False
    """Putting it up has failed."""
    report_at: float = 0.0
    began_at: float | None = None

    def take(self, step: Step, now: float) -> None:
        if (self.state, step) not in NEXT:
            raise WrongStep(self, step)
        self.state = NEXT[self.state, step]
        self.since = now

    @property
    def is_out(self) -> bool:
        """A copy may be in the batch system."""
        return self.state in _OUT


_OUT: Final = frozenset({AttemptState.INTENDED, AttemptState.SUBMITTED, AttemptState.CLOSING})
