"""What a scheduler answers to reads: live state, cut out of its tables at one moment."""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Capabilities, Free, Requirements, Usage

from .identifiers import JobId, PeerId
from .journal import AttemptEnded, TaskEnded


class TaskView(msgspec.Struct, frozen=True):
    """A task that has not ended."""

    job_id: JobId
    index: int
    name: str
    user: str
    specification: Specification
    state: str
    reason: str
    """Why it waits: dependency, backoff, no_match, capacity, concurrency; else empty."""
    number: int
    """Of the attempt under way or, while it waits, of the next one."""
    worker: PeerId | None
    worker_name: str
    created_at: float
    started_at: float | None
    ended_attempts: list[AttemptEnded]
    next_try_at: float | None
    """Unix time, while it backs off."""
    stage: str = ""
    progress: bytes = b""
    """JSON: what it has reported last."""


class TaskIsOver(msgspec.Struct, frozen=True):
    """The task has ended."""

    job_id: JobId
    index: int
    name: str
    specification: Specification
    created_at: float
    stage: str = ""
    ended: TaskEnded | None = None
    """How, for those who have waited for it; the others ask the store."""


class Span(msgspec.Struct, frozen=True):
    """Tasks of one group, side by side."""

    first: int
    count: int
    specification: Specification
    stage: str = ""


class LiveTasks(msgspec.Struct, frozen=True):
    """A stretch of a job's tasks."""

    tasks: list[TaskView]
    """Those that have not ended."""
    spans: list[Span]
    """All of them, by index."""


class StageView(msgspec.Struct, frozen=True):
    name: str
    needs: list[str]
    on_failure: str
    state: str
    """waiting, running, succeeded, failed, cancelled"""
    tasks: int
    succeeded: int
    failed: int
    cancelled: int


class JobView(msgspec.Struct, frozen=True):
    job_id: JobId
    name: str
    user: str
    state: str
    closed: bool
    batches: int
    tasks: int
    queued: int
    live: int
    """Leased or running."""
    succeeded: int
    failed: int
    cancelled: int
    created_at: float
    ended_at: float | None
    stages: list[StageView] = []


class ShapeView(msgspec.Struct, frozen=True):
    """Tasks of a job that are alike to a provider, and who could run them."""

    tasks: int
    stages: list[str]
    driver: str
    model: str
    image: str
    requirements: Requirements
    priority: int
    source: str
    """Where the resources come from: given; model, whose own slots are reserved; seen, what
    such tasks were seen to use; default, one core."""
    workers_known: int
    workers_able: int
    """That could run one, if nothing else ran there."""
    workers_free: int
    """That have room for one now."""
    slots: int
    """How many run side by side on all of them, if nothing else ran there."""
    missing: list[Obstacle]
    """What keeps the others from it."""


class StagePreview(msgspec.Struct, frozen=True):
    name: str
    needs: list[str]
    on_failure: str
    tasks: int


class PreviewView(msgspec.Struct, frozen=True):
    """What a job would become."""

    tasks: int
    stages: list[StagePreview]
    shapes: list[ShapeView]


class BatchView(msgspec.Struct, frozen=True):
    """A batch that was taken in, now or before."""

    job_id: JobId
    batch: int
    first: int
    count: int
    again: bool
    """It had come before; nothing was changed."""


class SubmittedView(msgspec.Struct, frozen=True):
    job: JobView
    again: bool
    """The same id or key with the same body had come before."""


class Fact(msgspec.Struct, frozen=True):
    """Who said something of a worker, and when."""

    fact: str
    """presence, capabilities, load"""
    source: str
    """registered, link, check, dht, gossip, gateway, call, connection"""
    at: float
    """Unix time."""


class WorkerView(msgspec.Struct, frozen=True):
    peer: PeerId
    name: str
    state: str
    """healthy, suspect, away, called, or known: without a link"""
    accepting: bool
    capabilities: Capabilities
    free: Free | None
    """By the scheduler's books; None while it has no link and has not said."""
    running: int
    """Attempts of this scheduler that are out with it."""
    leases: int
    slots: int
    success_rate: float | None
    avg_completion_seconds: float | None
    last_seen_at: float | None
    consecutive_failures: int
    rtt_seconds: float | None
    addresses: tuple[str, ...]
    software_version: str
    facts: tuple[Fact, ...] = ()
    closed_for: str = ""
    """Why it is not accepting."""
    usage: Usage | None = None
    """What of its machine is in use, by whomever."""
    tasks: int | None = 0
    """Attempts that it holds, of all schedulers; None where `free` is."""


class ServiceView(msgspec.Struct, frozen=True):
    """A job that keeps a model served."""

    job_id: JobId
    user: str
    model: str
    replicas: int
    parameters: bytes
    """JSON: how it is served."""


class Obstacle(msgspec.Struct, frozen=True):
    """Why these workers do not run the task now."""

    reason: str
    temporary: bool
    """It fits, and has no room or health at the moment."""
    workers: list[str]
    """Names, at most a few."""
    count: int


class RankedWorker(msgspec.Struct, frozen=True):
    """A worker that may be given a task, and what speaks for and against it."""

    peer: PeerId
    name: str
    eta_seconds: float | None
    """When it has room: 0 is now, None if nobody can tell."""
    seconds: float
    """The sum of `terms`: the worker with the least is first."""
    terms: dict[str, float]
    """Seconds, by name; see `core.matching.score`."""


ENDED: Final = "ended"


class Explanation(msgspec.Struct, frozen=True):
    job_id: JobId
    index: int
    state: str
    """`ENDED` for a task whose end is in the journal alone."""
    reason: str
    summary: str
    obstacles: list[Obstacle]
    position: int | None
    """How many tasks of its shape are ahead of it, while it waits."""
    workers_known: int
    next_try_seconds: float | None
    workers_fitting: int = 0
    """That could ever run it."""
    estimated_start_seconds: float | None = None
    """While it waits, and if it is known how long its kind takes."""
    ranking: list[RankedWorker] = []
    """While it waits: the workers that rank first for it."""


class Figures(msgspec.Struct, frozen=True):
    """For metrics and statistics."""

    tasks_queued: int
    tasks_live: int
    tasks_succeeded: int
    tasks_failed: int
    tasks_cancelled: int
    attempts_ended_unsuccessfully: int
    workers_known: int
    workers_available: int
    workers_busy: int
    jobs_open: int
    leases_held: int
    results_damaged: int = 0
    results_refused: int = 0
    """Of attempts that were not their task's current one."""
    forgeries_refused: int = 0
    """Attempts that workers listed or ended, and that they were never given."""
    workers_refused: int = 0
    """Because they speak another version."""
    checks_late: int = 0
    workers_quarantined: int = 0
    """That spoil what they get."""
    workers_linked: int = 0
    """Of workers without a link."""
