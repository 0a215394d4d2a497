"""What the API answers, as objects. Fields that a newer scheduler adds are ignored."""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import TaskCancelled, TaskFailed

TERMINAL = frozenset({"succeeded", "failed", "cancelled"})


class Shown(msgspec.Struct):
    """What a notebook shows as a table."""

    def shown(self) -> dict[str, object]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        import html  # nobody but notebooks asks

        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
            for name, value in self.shown().items()
            if value not in (None, "")
        )
        return f"<table>{cells}</table>"


class Attempt(msgspec.Struct):
    number: int
    state: str
    worker: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    exit_code: int | None = None
    error: str | None = None
    code: str | None = None


class TaskResult(msgspec.Struct):
    text: str | None = None
    json: Any = None
    exit_code: int | None = None
    digest: str | None = None
    size: int | None = None
    """Of a value that is not here, because it is long; `Client.result` gets it."""


class Outputs(msgspec.Struct):
    """What a task leaves: what it declares, and once it has succeeded, what there is."""

    patterns: list[str] = []
    keep: str = ""
    digest: str = ""
    """Of the list of files."""
    files: int = 0
    size: int = 0
    worker: str = ""


class Task(Shown):
    id: str
    job_id: str
    state: str
    name: str = ""
    stage: str = ""
    reason: str | None = None
    attempt: int = 0
    attempts: list[Attempt] = []
    worker: str | None = None
    model: str | None = None
    command: list[str] | None = None
    image: str | None = None
    python: str | None = None
    driver: str | None = None
    environment: str | None = None
    """The digest of its text."""
    arguments: Any = None
    input: Any = None
    """Of a model."""
    requirements: dict[str, Any] = {}
    network: bool = False
    sandbox: str | None = None
    inputs: list[dict[str, Any]] = []
    outputs: Outputs | None = None
    priority: int = 0
    created_at: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    next_try_at: str | None = None
    """While it waits for another attempt."""
    result: TaskResult | None = None
    error: str | None = None
    code: str | None = None
    """Why it failed or was cancelled, for programs to react to."""
    progress: float | None = None
    """From 0 to 1, as the task reports it itself."""
    message: str = ""
    metrics: dict[str, float] = {}
    cost: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL

    def shown(self) -> dict[str, object]:
        what = self.python or self.model or self.image or " ".join(self.command or ())
        first = (self.error or "").partition("\n")[0]
        return {
            "task": self.id,
            "state": self.state,
            "runs": what,
            "worker": self.worker,
            "progress": None if self.progress is None else f"{self.progress:.0%}",
            "error": first,
        }

    @property
    def exit_code(self) -> int | None:
        return self.attempts[-1].exit_code if self.attempts else None

    @property
    def value(self) -> Any:
        """What a function returned, or a process wrote; raises what kept it from that."""
        if self.state == "cancelled":
            raise TaskCancelled(self.id)
        if self.state != "succeeded":
            raise TaskFailed(self.id, self.error or f"it is {self.state}", self.exit_code)
        if self.result is None:
            return None
        return self.result.text if self.result.text is not None else self.result.json


class TaskCounts(msgspec.Struct):
    total: int = 0
    queued: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled


class Stage(msgspec.Struct):
    name: str
    state: str
    needs: list[str] = []
    on_failure: str = "fail"
    tasks: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled


class Job(Shown):
    id: str
    state: str
    name: str = ""
    user: str = ""
    closed: bool = True
    batches: int = 0
    tasks: TaskCounts = msgspec.field(default_factory=TaskCounts)
    stages: list[Stage] = []
    created_at: str = ""
    finished_at: str | None = None

    def shown(self) -> dict[str, object]:
        tasks = self.tasks
        return {
            "job": self.id,
            "name": self.name,
            "state": self.state,
            "tasks": f"{tasks.ended:,} of {tasks.total:,} have ended",
            "failed": tasks.failed or None,
            "running": tasks.running or None,
        }

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL


class Result(msgspec.Struct):
    """One task's end, as a line of a job's results."""

    index: int
    state: str
    value: Any = None
    exit_code: int | None = None
    error: str | None = None
    digest: str | None = None
    attempt: int = 0
    worker: str | None = None
    sequence: int = 0
    size: int | None = None
    """Of a value that is too long for a line; `Client.result` gets it."""
    code: str | None = None
    """Why the task failed or was cancelled, for programs to react to."""


class Logs(msgspec.Struct, omit_defaults=True):
    stdout: str
    stderr: str
    complete: bool = True
    """False while there may come more."""


class LogPiece(msgspec.Struct, frozen=True):
    """What a task has written, as it comes."""

    task_id: str
    attempt: int
    stream: str
    """stdout or stderr"""
    data: bytes
    left_out_bytes: int = 0
    """So much was left out before it, because it was too much at once."""


class Load(msgspec.Struct):
    running: int = 0
    leases: int = 0
    slots: int = 0
    cpu_cores_free: float | None = 0.0
    """None, as `memory_free`, `gpus_free` and `tasks`, while it has no link to say it by."""
    memory_free: int | None = 0
    gpus_free: float | None = 0.0
    tasks: int | None = 0
    cpu_usage: float | None = None
    """What of the machine is really in use, by whomever, from 0 to 1."""
    memory_usage: float | None = None
    gpu_usage: list[float | None] = []


class Health(msgspec.Struct):
    success_rate: float | None = None
    avg_completion_time: float | None = None
    last_seen: str | None = None
    consecutive_failures: int = 0


class Worker(Shown):
    peer_id: str
    name: str
    state: str
    capabilities: dict[str, Any]
    accepting: bool = True
    closed_for: str = ""
    """Why it is not accepting."""
    load: Load = msgspec.field(default_factory=Load)
    health: Health = msgspec.field(default_factory=Health)
    rtt_ms: float | None = None

    def shown(self) -> dict[str, object]:
        return {
            "worker": self.name,
            "state": self.state,
            "cores": self.capabilities.get("cpu_cores"),
            "free cores": self.load.cpu_cores_free,
            "tasks": self.load.tasks,
            "closed for": self.closed_for,
        }


class Obstacle(msgspec.Struct):
    reason: str
    temporary: bool
    workers: list[str]
    count: int


class RankedWorker(msgspec.Struct):
    """A worker that may be given a task; the one with the fewest seconds is first."""

    peer: str
    name: str
    eta_seconds: float | None
    """When it has room: 0 is now, None if nobody can tell."""
    seconds: float
    terms: dict[str, float]
    """What adds up to `seconds`: wait, contention, history, price, transfer, …"""


class Explanation(msgspec.Struct):
    job_id: str
    index: int
    state: str
    reason: str
    summary: str
    obstacles: list[Obstacle]
    position: int | None
    workers_known: int
    next_try_seconds: float | None
    workers_fitting: int = 0
    estimated_start_seconds: float | None = None
    ranking: list[RankedWorker] = []


class StagePreview(msgspec.Struct):
    name: str
    needs: list[str]
    on_failure: str
    tasks: int


class ShapePreview(msgspec.Struct):
    """Tasks that are alike to a worker, and who could run them."""

    tasks: int
    stages: list[str]
    driver: str
    requirements: dict[str, Any]
    source: str
    workers_known: int
    workers_able: int
    workers_free: int
    slots: int
    missing: list[Obstacle]


class Sample(msgspec.Struct):
    """What the first task of a stage would run."""

    stage: str = ""
    command: list[str] | None = None
    python: str | None = None
    model: str | None = None
    image: str | None = None
    arguments: Any = None
    env: dict[str, str] = {}
    parameters: list[str] = []
    unfilled: list[str] = []
    """The `${…}` that nothing gives a value."""


class Preview(msgspec.Struct):
    """What a job would become."""

    tasks: int
    stages: list[StagePreview]
    shapes: list[ShapePreview]
    samples: list[Sample] = []


class TaskPage(msgspec.Struct):
    items: list[Task]
    next: str | None


class JobPage(msgspec.Struct):
    items: list[Job]
    next: str | None


class WorkerPage(msgspec.Struct):
    items: list[Worker]
    next: str | None
