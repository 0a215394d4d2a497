"""Tasks, as clients read them: live ones from the machine, ended ones from the store."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import msgspec
from msgspec import UnsetType

from mycel.api.answers import answers
from mycel.api.answers.answers import Finished, ResultAnswer, TaskAnswer
from mycel.api.answers.file_answers import with_files
from mycel.api.backend import Backend, ask_for
from mycel.api.http.exchange import JSON, Connected, Request
from mycel.api.http.problems import Problem, not_found
from mycel.core.events import (
    CancelTask,
    Event,
    ExplainTask,
    ReadJob,
    ReadTask,
    WaitTask,
)
from mycel.core.identifiers import JobId, parse_task_id, task_id
from mycel.core.journal import TaskEnded
from mycel.core.states import TaskState
from mycel.core.views import ENDED, Explanation, JobView, TaskIsOver, TaskView
from mycel.store.interface import Reader

PIECE_BYTES: Final = 1 << 20


def parse(text: str) -> tuple[JobId, int]:
    """A task's id; anything else names no task."""
    parsed = parse_task_id(text)
    if parsed is None:
        raise not_found(f"task {text!r}")
    return parsed


async def job_view(backend: Backend, job: JobId) -> JobView:
    return await ask_for(backend, JobView, lambda request: ReadJob(request, job))


async def read(backend: Backend, job: JobId, index: int) -> TaskAnswer:
    found = await backend.ask(lambda request: ReadTask(request, job, index))
    if isinstance(found, TaskView):
        arguments = b""
        sweep = found.specification.sweep
        if sweep is not None:
            arguments = sweep.arguments(index)
        elif found.specification.work.driver in ("python", "process"):
            arguments = await backend.read(lambda reader: reader.arguments(job, index))
        return answers.running_task(found, arguments)
    assert isinstance(found, TaskIsOver)
    return await _finished(backend, found)


async def _finished(backend: Backend, over: TaskIsOver) -> TaskAnswer:
    job = over.job_id
    finished = await backend.read(lambda reader: _load(reader, job, over.index))
    if over.specification.sweep is not None:
        arguments = over.specification.sweep.arguments(over.index)
        finished = msgspec.structs.replace(finished, arguments=arguments)
    task = answers.finished_task(
        job, over.name, over.specification, over.created_at, finished, over.stage
    )
    attempt, declared = finished.ended.attempt, task.outputs
    if isinstance(declared, UnsetType) or backend.blobs is None or attempt is None:
        return task
    left = await backend.blobs.outputs_of(job, over.index, attempt)
    if left is None:
        return task
    return msgspec.structs.replace(task, outputs=with_files(declared, left))


def _load(reader: Reader, job: JobId, index: int) -> Finished:
    result = reader.result(job, index)
    if result is None:
        raise _pruned(job, index)
    return Finished(result.ended, reader.ended_attempts(job, index), reader.arguments(job, index))


async def wait(backend: Backend, job: JobId, index: int, seconds: float) -> bool:
    """Whether the task ended in time."""

    def make(request: int) -> Event:
        return WaitTask(request, job, index)  # type: ignore[arg-type]

    if seconds <= 0:
        return False
    try:
        async with asyncio.timeout(seconds):
            await backend.ask(make)
    except TimeoutError:
        return False
    return True


async def read_task(request: Request) -> None:
    seconds = request.query().wait_seconds()
    job, index = parse(request.name)
    with Connected(request.receive), request.waiting(seconds):
        await wait(request.backend, job, index, seconds)
        task = await read(request.backend, job, index)
    await request.answer(task)


async def cancel_task(request: Request) -> None:
    """Again is fine; after success or failure it is refused."""
    request.query()
    job, index = parse(request.name)
    over = await ask_for(request.backend, TaskIsOver, lambda number: CancelTask(number, job, index))
    task = await _finished(request.backend, over)
    if task.state != TaskState.CANCELLED:
        detail = f"task {request.name} has {task.state}: it cannot be cancelled any more"
        raise Problem(409, detail)
    await request.answer(task)


async def read_result(request: Request) -> None:
    seconds = request.query().wait_seconds()
    backend, (job, index) = request.backend, parse(request.name)
    with Connected(request.receive):
        end = await _end(backend, job, index, seconds)
    if end.value_size:
        await _send_long_result(request, job, index, end)
        return
    task = await read(backend, job, index)
    if task.state != "succeeded":
        was = "" if task.state == "failed" else "was "
        why = task.error or task.reason or "no result"
        raise Problem(409, f"task {request.name} {was}{task.state}: {why}")
    await request.answer(task.result or ResultAnswer())


async def _end(backend: Backend, job: JobId, index: int, seconds: float) -> TaskEnded:
    """The end of a task; a problem while it has none."""
    if not await wait(backend, job, index, seconds):
        found = await backend.ask(lambda request: ReadTask(request, job, index))
        if isinstance(found, TaskView):
            text = task_id(job, index)
            raise Problem(409, f"task {text} is {found.state}; wait for it with ?wait=SECONDS")
    result = await backend.read(lambda reader: reader.result(job, index))
    if result is None:
        raise _pruned(job, index)
    return result.ended


async def _send_long_result(request: Request, job: JobId, index: int, end: TaskEnded) -> None:
    """The answer of a result whose value is in a file, piece by piece."""
    await request.send({"type": "http.response.start", "status": 200, "headers": [JSON]})
    await request.send({"type": "http.response.body", "body": b'{"json":', "more_body": True})
    offset = 0
    while offset < end.value_size:
        look = partial(_piece, job=job, index=index, offset=offset)
        piece = await request.backend.read(look)
        if not piece:
            raise _pruned(job, index)
        offset += len(piece)
        await request.send({"type": "http.response.body", "body": piece, "more_body": True})
    tail = b',"digest":"blake3:%s","size":%d}' % (end.digest.hex().encode(), end.value_size)
    await request.send({"type": "http.response.body", "body": tail})


def _piece(reader: Reader, job: JobId, index: int, offset: int) -> bytes:
    return reader.value(job, index, offset=offset, length=PIECE_BYTES)


async def explain_task(request: Request) -> None:
    request.query()
    job, index = parse(request.name)
    found = await ask_for(
        request.backend, Explanation, lambda number: ExplainTask(number, job, index)
    )
    if found.state == ENDED:
        result = await request.backend.read(lambda reader: reader.result(job, index))
        if result is None:
            raise _pruned(job, index)
        ended = result.ended
        found = msgspec.structs.replace(
            found, state=ended.state, reason=ended.reason, summary=_how_it_ended(ended)
        )
    await request.answer(found)


def _pruned(job: JobId, index: int) -> Problem:
    return not_found(f"task {task_id(job, index)}: it was pruned")


def _how_it_ended(ended: TaskEnded) -> str:
    tried = f"attempt {ended.number}" if ended.number else "no attempt was made"
    return f"{tried}: {ended.error}" if ended.error else tried
