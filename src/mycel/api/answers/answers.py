"""What clients get: the shapes of answers, and how they come out of the core's views."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import astuple

from mycel.api.submission.samples import SampleAnswer
from mycel.core.identifiers import JobId, task_id
from mycel.core.journal import AttemptEnded, TaskEnded
from mycel.core.model import reports
from mycel.core.model.jobs import Specification
from mycel.core.model.model_names import shown
from mycel.core.model.resources import Requirements
from mycel.core.model.work import OWN_DRIVERS, Work
from mycel.core.views import JobView, Obstacle, PreviewView, StagePreview, TaskView

from .file_answers import InputAnswer, OutputsAnswer, files_of

RESULT_TEXT_BYTES_MAX: Final = 64 << 10
"""A process' output beyond this is not repeated in its result; the logs have it."""


class AttemptAnswer(msgspec.Struct, frozen=True):
    number: int
    state: str
    worker: str | None
    started_at: str | None
    ended_at: str | None
    exit_code: int | None
    error: str | None
    code: str | None = None
    """Why it failed, for programs; `error` says it to people."""


class GpusAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    count: float
    model: str = ""
    memory: int = 0


class RequirementsAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    cpu_cores: float | UnsetType = UNSET
    min_memory: int = 0
    disk: int = 0
    gpu_required: bool = False
    gpus: GpusAnswer | None = None
    custom: dict[str, float] = {}
    labels: dict[str, str] = {}
    arch: str = ""
    os: str = ""
    software: dict[str, str] = {}


class RetryAnswer(msgspec.Struct, frozen=True):
    max_attempts: int | None
    on_error: bool


class RevocationsAnswer(msgspec.Struct, frozen=True):
    taken: int
    """How many were good and news."""


class ResultAnswer(msgspec.Struct, frozen=True):
    text: str | UnsetType = UNSET
    json: Raw | UnsetType = UNSET
    usage: Raw | UnsetType = UNSET
    """What a model counted, for example its tokens."""
    exit_code: int | UnsetType = UNSET
    digest: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    """Of a value that is too long to stand here: `/api/v1/tasks/{id}/result` streams it."""


class TaskAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`model` … `python` say what it runs: only those that it has are there."""

    id: str
    job_id: str
    name: str
    stage: str | UnsetType = UNSET
    state: str
    reason: str | None
    attempt: int
    attempts: list[AttemptAnswer]
    worker: str | None
    model: str | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET
    command: tuple[str, ...] | UnsetType = UNSET
    image: str | UnsetType = UNSET
    mounts: tuple[str, ...] | UnsetType = UNSET
    python: str | UnsetType = UNSET
    driver: str | UnsetType = UNSET
    environment: str | UnsetType = UNSET
    """The digest of its text."""
    arguments: Raw | UnsetType = UNSET
    requirements: RequirementsAnswer
    priority: int
    timeout: float | None
    retry: RetryAnswer | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    deadline: str | UnsetType = UNSET
    max_cost: float | UnsetType = UNSET
    network: bool | UnsetType = UNSET
    sandbox: str | UnsetType = UNSET
    inputs: list[InputAnswer] | UnsetType = UNSET
    outputs: OutputsAnswer | UnsetType = UNSET
    created_at: str
    started_at: str | None
    finished_at: str | None
    next_try_at: str | UnsetType = UNSET
    result: ResultAnswer | None
    error: str | None
    code: str | None = None
    """Why it failed or was cancelled, for programs; `error` says it to people."""
    progress: float | None = None
    message: str | UnsetType = UNSET
    """What it said with its progress."""
    metrics: dict[str, float] | UnsetType = UNSET
    cost: float = 0.0
    """Of its ended attempts, in whatever unit the swarm has agreed on."""


class TaskCounts(msgspec.Struct, frozen=True):
    total: int
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int


class StageAnswer(msgspec.Struct, frozen=True):
    name: str
    needs: list[str]
    on_failure: str
    state: str
    tasks: int
    succeeded: int
    failed: int
    cancelled: int


class JobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    user: str
    state: str
    closed: bool
    batches: int | UnsetType = UNSET
    """Taken in so far: the next one has this number."""
    tasks: TaskCounts
    stages: list[StageAnswer] | UnsetType = UNSET
    created_at: str
    finished_at: str | None


class ShapeAnswer(msgspec.Struct, frozen=True):
    """Tasks that are alike to a worker."""

    tasks: int
    stages: list[str]
    driver: str
    requirements: RequirementsAnswer
    source: str
    """Where the resources come from: given, model, seen or default."""
    workers_known: int
    workers_able: int
    workers_free: int
    slots: int
    missing: list[Obstacle]


class PreviewAnswer(msgspec.Struct, frozen=True):
    """What a job would become."""

    tasks: int
    stages: list[StagePreview]
    shapes: list[ShapeAnswer]
    samples: list[SampleAnswer] = []


class BatchAnswer(msgspec.Struct, frozen=True):
    job_id: str
    batch: int
    first: int
    """The index of its first task."""
    count: int
    again: bool


class TaskList(msgspec.Struct, frozen=True):
    items: list[TaskAnswer]
    next: str | None
    """The cursor of the next page: `?cursor=…`."""


class JobList(msgspec.Struct, frozen=True):
    items: list[JobAnswer]
    next: str | None


class LogsAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    stdout: str
    stderr: str
    complete: bool = True
    """False while there may come more."""


class Finished(msgspec.Struct, frozen=True):
    """A task's end, and what stands beside it in the store."""

    ended: TaskEnded
    attempts: list[AttemptEnded] = []
    arguments: bytes = b""


def iso(seconds: float) -> str:
    # Microseconds are what a float of today's seconds holds for certain.
    whole, microseconds = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_iso_second(whole)}.{microseconds // 1000:03d}Z"


@lru_cache(64)
def _iso_second(seconds: int) -> str:
    """Most of the moments that are told together lie in one second or two."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")[:-6]


def iso_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else iso(seconds)


def running_task(view: TaskView, arguments: bytes) -> TaskAnswer:
    """A task that has not ended."""
    attempts = [_ended_attempt(attempt) for attempt in view.ended_attempts]
    if view.worker is not None:
        state = "running" if view.state == "running" else "assigned"
        started = iso_or_none(view.started_at)
        attempts.append(AttemptAnswer(view.number, state, view.worker, started, None, None, None))
    return TaskAnswer(
        id=task_id(view.job_id, view.index),
        job_id=view.job_id,
        name=view.name,
        stage=view.stage or UNSET,
        state=view.state,
        reason=view.reason or None,
        attempt=view.number,
        attempts=attempts,
        worker=view.worker,
        created_at=iso(view.created_at),
        started_at=iso_or_none(view.started_at),
        finished_at=None,
        next_try_at=UNSET if view.next_try_at is None else iso(view.next_try_at),
        result=None,
        error=None,
        cost=sum(attempt.cost for attempt in view.ended_attempts),
        **_reported(view.progress),
        **_template(view.specification, arguments),
    )


def finished_task(
    job: JobId,
    name: str,
    specification: Specification,
    created_at: float,
    finished: Finished,
    stage: str = "",
) -> TaskAnswer:
    ended = finished.ended
    started, over = iso_or_none(ended.started_at), iso(ended.ended_at)
    attempts = [_ended_attempt(attempt) for attempt in finished.attempts]
    if ended.attempt is not None:
        last = (ended.number, ended.attempt_state, ended.worker, started, over, ended.exit_code)
        attempts.append(AttemptAnswer(*last, ended.error or None, ended.code or None))
    return TaskAnswer(
        id=task_id(job, ended.index),
        job_id=job,
        name=name,
        stage=stage or UNSET,
        state=ended.state,
        reason=ended.reason or None,
        attempt=ended.number,
        attempts=attempts,
        worker=ended.worker,
        created_at=iso(created_at),
        started_at=started,
        finished_at=over,
        result=result_of(ended, specification.work.driver),
        error=ended.error or None,
        code=ended.reason or ended.code or None,
        cost=ended.cost,
        **_reported(ended.progress),
        **_template(specification, finished.arguments),
    )


def _reported(raw: bytes) -> dict[str, Any]:
    """What the task has said of itself."""
    if not raw:
        return {}
    report = reports.decode(raw)
    return {
        "progress": report.progress,
        "message": report.message or UNSET,
        "metrics": report.metrics or UNSET,
    }


def result_of(ended: TaskEnded, driver: str) -> ResultAnswer | None:
    digest = f"blake3:{ended.digest.hex()}" if ended.digest else UNSET
    if ended.value_size:
        return ResultAnswer(digest=digest, size=ended.value_size)
    if ended.value and driver == "model":
        answer = msgspec.json.decode(ended.value, type=ResultAnswer)
        return msgspec.structs.replace(answer, digest=digest)
    if ended.value:
        code = UNSET if ended.exit_code is None else ended.exit_code
        return ResultAnswer(json=Raw(ended.value), exit_code=code, digest=digest)
    if ended.exit_code is not None:
        text: str | UnsetType = UNSET
        if len(ended.stdout) <= RESULT_TEXT_BYTES_MAX:
            text = ended.stdout.decode(errors="replace")
        return ResultAnswer(text=text, exit_code=ended.exit_code, digest=digest)
    return None


def _ended_attempt(attempt: AttemptEnded) -> AttemptAnswer:
    return AttemptAnswer(
        attempt.number,
        attempt.state,
        attempt.worker,
        iso_or_none(attempt.started_at),
        iso(attempt.ended_at),
        attempt.exit_code,
        attempt.error or None,
        attempt.code or None,
    )


def _template(specification: Specification, arguments: bytes) -> dict[str, Any]:
    """What a task is, as opposed to how it fares. Its environment may hold secrets: it is
    not repeated."""
    work = specification.work
    fields: dict[str, Any] = {
        "requirements": _requirements(specification.requirements),
        "priority": specification.priority,
        "timeout": work.timeout_seconds,
    }
    fields |= _what_runs(work)
    if arguments:
        fields["arguments"] = Raw(arguments)
    retry = specification.retry
    if retry.max_attempts is not None or retry.on_error:
        fields["retry"] = RetryAnswer(retry.max_attempts, retry.on_error)
    if specification.labels:
        fields["labels"] = dict(specification.labels)
    if specification.deadline_at is not None:
        fields["deadline"] = iso(specification.deadline_at)
    if specification.max_cost is not None:
        fields["max_cost"] = specification.max_cost
    if work.bounds.network:
        fields["network"] = True
    if work.bounds.sandbox:
        fields["sandbox"] = work.bounds.sandbox
    fields |= files_of(work)
    return fields


def _what_runs(work: Work) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if work.function:
        fields["python"] = work.function
    if work.model:
        fields["model"] = shown(work.model)
    if work.input:
        fields["input"] = Raw(work.input)
    if work.parameters:
        fields["parameters"] = Raw(work.parameters)
    if work.command:
        fields["command"] = work.command
    if work.image:
        fields["image"] = work.image
    if work.mounts:
        fields["mounts"] = work.mounts
    if work.environment is not None:
        fields["environment"] = f"blake3:{work.environment.key}"
    if work.driver not in OWN_DRIVERS:
        fields["driver"] = work.driver
    return fields


def _requirements(requirements: Requirements) -> RequirementsAnswer:
    gpus = requirements.gpus
    return RequirementsAnswer(
        cpu_cores=requirements.cpu_cores,
        min_memory=requirements.min_memory,
        disk=requirements.disk,
        gpu_required=gpus is not None,
        gpus=None if gpus is None else GpusAnswer(gpus.count, gpus.model, gpus.memory),
        custom=dict(requirements.custom),
        labels=dict(requirements.labels),
        arch=requirements.arch,
        os=requirements.os,
        software=dict(requirements.software),
    )


def preview(view: PreviewView, samples: list[SampleAnswer]) -> PreviewAnswer:
    shapes = [
        ShapeAnswer(
            one.tasks,
            one.stages,
            one.driver,
            _requirements(one.requirements),
            one.source,
            one.workers_known,
            one.workers_able,
            one.workers_free,
            one.slots,
            one.missing,
        )
        for one in view.shapes
    ]
    return PreviewAnswer(view.tasks, view.stages, shapes, samples)


def job(view: JobView) -> JobAnswer:
    return JobAnswer(
        id=view.job_id,
        name=view.name,
        user=view.user,
        state=view.state,
        closed=view.closed,
        batches=view.batches,
        tasks=TaskCounts(
            view.tasks, view.queued, view.live, view.succeeded, view.failed, view.cancelled
        ),
        stages=[StageAnswer(*astuple(stage)) for stage in view.stages] or UNSET,
        created_at=iso(view.created_at),
        finished_at=iso_or_none(view.ended_at),
    )
