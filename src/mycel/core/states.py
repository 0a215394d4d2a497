"""The states of tasks, attempts, leases, workers and jobs, and how they may change.

The tables are the specification: a pair that a table does not list is a bug of ours, and
raises `WrongStep`.

    task      queued ── assign ──▶ leased ── start ──▶ running ──▶ succeeded │ failed │ cancelled
                 ▲                   │                    │
                 └──── give back ────┴────── retry ───────┘

    stage     waiting ── start ──▶ started ──▶ ended      waiting ── skip ──▶ skipped

    lease     (scheduler)  held ─▶ over        restored ─▶ held │ over
              (worker)     granted ─▶ over
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Generic, TypeVar

from .errors import WrongStep

State = TypeVar("State", bound=StrEnum)
Step = TypeVar("Step", bound=StrEnum)


class Table(dict[tuple[State, Step], State], Generic[State, Step]):
    """`table[state, step]` is the next state."""

    def __init__(self, subject: str, rows: dict[tuple[State, Step], State]) -> None:
        super().__init__(rows)
        self.subject = subject

    def __missing__(self, key: tuple[State, Step]) -> State:
        raise WrongStep(self.subject, *key)


class TaskState(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TaskStep(StrEnum):
    ASSIGN = "assign"
    ADOPT = "adopt"
    START = "start"
    GIVE_BACK = "give_back"
    RETRY = "retry"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"


TASK: Final = Table[TaskState, TaskStep](
    "task",
    {
        (TaskState.QUEUED, TaskStep.ASSIGN): TaskState.LEASED,
        (TaskState.QUEUED, TaskStep.ADOPT): TaskState.LEASED,
        (TaskState.QUEUED, TaskStep.FAIL): TaskState.FAILED,
        (TaskState.QUEUED, TaskStep.CANCEL): TaskState.CANCELLED,
        (TaskState.LEASED, TaskStep.START): TaskState.RUNNING,
        (TaskState.LEASED, TaskStep.GIVE_BACK): TaskState.QUEUED,
        (TaskState.LEASED, TaskStep.RETRY): TaskState.QUEUED,
        (TaskState.LEASED, TaskStep.SUCCEED): TaskState.SUCCEEDED,
        (TaskState.LEASED, TaskStep.FAIL): TaskState.FAILED,
        (TaskState.LEASED, TaskStep.CANCEL): TaskState.CANCELLED,
        (TaskState.RUNNING, TaskStep.RETRY): TaskState.QUEUED,
        (TaskState.RUNNING, TaskStep.SUCCEED): TaskState.SUCCEEDED,
        (TaskState.RUNNING, TaskStep.FAIL): TaskState.FAILED,
        (TaskState.RUNNING, TaskStep.CANCEL): TaskState.CANCELLED,
    },
)
TERMINAL: Final = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})


class AttemptState(StrEnum):
    ASSIGNED = "assigned"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    RETURNED = "returned"
    """Never started: it does not count, and nobody sees it."""


class AttemptStep(StrEnum):
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    TIME_OUT = "time_out"
    LOSE = "lose"
    CANCEL = "cancel"
    RETURN = "return"


ATTEMPT: Final = Table[AttemptState, AttemptStep](
    "attempt",
    {
        (AttemptState.ASSIGNED, AttemptStep.START): AttemptState.RUNNING,
        (AttemptState.ASSIGNED, AttemptStep.SUCCEED): AttemptState.SUCCEEDED,
        (AttemptState.ASSIGNED, AttemptStep.FAIL): AttemptState.FAILED,
        (AttemptState.ASSIGNED, AttemptStep.TIME_OUT): AttemptState.TIMED_OUT,
        (AttemptState.ASSIGNED, AttemptStep.LOSE): AttemptState.LOST,
        (AttemptState.ASSIGNED, AttemptStep.CANCEL): AttemptState.CANCELLED,
        (AttemptState.ASSIGNED, AttemptStep.RETURN): AttemptState.RETURNED,
        (AttemptState.RUNNING, AttemptStep.START): AttemptState.RUNNING,
        (AttemptState.RUNNING, AttemptStep.SUCCEED): AttemptState.SUCCEEDED,
        (AttemptState.RUNNING, AttemptStep.FAIL): AttemptState.FAILED,
        (AttemptState.RUNNING, AttemptStep.TIME_OUT): AttemptState.TIMED_OUT,
        (AttemptState.RUNNING, AttemptStep.LOSE): AttemptState.LOST,
        (AttemptState.RUNNING, AttemptStep.CANCEL): AttemptState.CANCELLED,
    },
)


class LeaseState(StrEnum):
    """A worker's registration as the scheduler sees it, which may book the worker by it."""

    RESTORED = "restored"
    """Known from the journal: the worker has not come back yet."""
    HELD = "held"
    OVER = "over"


class LeaseStep(StrEnum):
    CONFIRM = "confirm"
    """The worker has come back under the same epoch."""
    REPLACE = "replace"
    """It has come back under a later one."""
    RENEW = "renew"
    EXPIRE = "expire"
    END = "end"
    """The worker is dead, or was sent away."""


LEASE: Final = Table[LeaseState, LeaseStep](
    "lease",
    {
        (LeaseState.RESTORED, LeaseStep.CONFIRM): LeaseState.HELD,
        (LeaseState.RESTORED, LeaseStep.REPLACE): LeaseState.OVER,
        (LeaseState.RESTORED, LeaseStep.EXPIRE): LeaseState.OVER,
        (LeaseState.RESTORED, LeaseStep.END): LeaseState.OVER,
        (LeaseState.HELD, LeaseStep.CONFIRM): LeaseState.HELD,
        (LeaseState.HELD, LeaseStep.REPLACE): LeaseState.OVER,
        (LeaseState.HELD, LeaseStep.RENEW): LeaseState.HELD,
        (LeaseState.HELD, LeaseStep.EXPIRE): LeaseState.OVER,
        (LeaseState.HELD, LeaseStep.END): LeaseState.OVER,
    },
)


class GrantState(StrEnum):
    """A registration as the worker sees it."""

    GRANTED = "granted"
    OVER = "over"


class GrantStep(StrEnum):
    RENEW = "renew"
    EXPIRE = "expire"
    END = "end"
    """The link is gone, and nothing is between the two any more."""


GRANT: Final = Table[GrantState, GrantStep](
    "grant",
    {
        (GrantState.GRANTED, GrantStep.RENEW): GrantState.GRANTED,
        (GrantState.GRANTED, GrantStep.EXPIRE): GrantState.OVER,
        (GrantState.GRANTED, GrantStep.END): GrantState.OVER,
    },
)


class WorkerState(StrEnum):
    EXPECTED = "expected"
    """Known only from the journal: it has not come back yet."""
    CALLED = "called"
    """Known by others' word, and dialled because work waits."""
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """Silent: no new work until it is heard again."""
    AWAY = "away"
    """Its link is down; its registration runs on."""
    PARTED = "parted"
    """Hung up in order, because nothing was wanted of it; it stays known."""
    DEAD = "dead"


class WorkerStep(StrEnum):
    REGISTER = "register"
    MISS = "miss"
    HEAR = "hear"
    LOSE_LINK = "lose_link"
    PART = "part"
    DIE = "die"


WORKER: Final = Table[WorkerState, WorkerStep](
    "worker",
    {
        (WorkerState.EXPECTED, WorkerStep.REGISTER): WorkerState.HEALTHY,
        (WorkerState.EXPECTED, WorkerStep.DIE): WorkerState.DEAD,
        (WorkerState.CALLED, WorkerStep.REGISTER): WorkerState.HEALTHY,
        (WorkerState.CALLED, WorkerStep.DIE): WorkerState.DEAD,
        (WorkerState.HEALTHY, WorkerStep.REGISTER): WorkerState.HEALTHY,
        (WorkerState.HEALTHY, WorkerStep.MISS): WorkerState.SUSPECT,
        (WorkerState.HEALTHY, WorkerStep.LOSE_LINK): WorkerState.AWAY,
        (WorkerState.HEALTHY, WorkerStep.PART): WorkerState.PARTED,
        (WorkerState.SUSPECT, WorkerStep.REGISTER): WorkerState.HEALTHY,
        (WorkerState.SUSPECT, WorkerStep.MISS): WorkerState.SUSPECT,
        (WorkerState.SUSPECT, WorkerStep.HEAR): WorkerState.HEALTHY,
        (WorkerState.SUSPECT, WorkerStep.LOSE_LINK): WorkerState.AWAY,
        (WorkerState.SUSPECT, WorkerStep.DIE): WorkerState.DEAD,
        (WorkerState.AWAY, WorkerStep.REGISTER): WorkerState.HEALTHY,
        (WorkerState.AWAY, WorkerStep.DIE): WorkerState.DEAD,
    },
)


class StageState(StrEnum):
    WAITING = "waiting"
    STARTED = "started"
    ENDED = "ended"
    SKIPPED = "skipped"
    """What it needs has failed: its tasks are cancelled."""


class StageStep(StrEnum):
    START = "start"
    END = "end"
    SKIP = "skip"


STAGE: Final = Table[StageState, StageStep](
    "stage",
    {
        (StageState.WAITING, StageStep.START): StageState.STARTED,
        (StageState.WAITING, StageStep.SKIP): StageState.SKIPPED,
        (StageState.STARTED, StageStep.END): StageState.ENDED,
    },
)


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
