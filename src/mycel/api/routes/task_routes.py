"""Tasks, as clients read them: live ones from the machine, ended ones from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from msgspec import UnsetType

from mycel.api.answers import answers
from mycel.api.answers.answers import Finished, ResultAnswer, TaskAnswer, TaskList
from mycel.api.answers.file_answers import with_files
from mycel.api.backend import Backend, ask_for
from mycel.api.http.exchange import JSON, Connected, Request
from mycel.api.http.problems import Problem, not_found, unprocessable
from mycel.core.errors import NotFound
from mycel.core.events import (
    CancelTask,
    Event,
    ExplainTask,
    ReadJob,
    ReadLiveTasks,
    ReadTask,
    WaitTask,
)
from mycel.core.identifiers import JobId, is_job_id, parse_task_id, task_id
from mycel.core.journal import TaskEnded
from mycel.core.states import TaskState
from mycel.core.views import ENDED, Explanation, JobView, LiveTasks, Span, TaskIsOver, TaskView
from mycel.store.interface import Reader

PIECE_BYTES: Final = 1 << 20
PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 1000
SCAN_MAX: Final = 20_000
"""So many tasks are looked at for one page; a filter that finds little ends it early."""
STATES: Final = tuple(TaskState)


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


# Lists go through the jobs, newest first, and through each job's tasks by index. A cursor is
# the id of the first task that was not looked at.


async def list_tasks(request: Request) -> None:
    query = request.query()
    job = query.text("job")
    if job is not None and not is_job_id(job):
        raise not_found(f"job {job!r}")
    state = query.text("state")
    cursor = query.text("cursor")
    limit = query.integer("limit", PAGE_DEFAULT, 1, PAGE_MAX)
    page = await _page(request.backend, request.caller.sees, job, state, cursor, limit)
    await request.answer(page)


async def _page(
    backend: Backend,
    sees: Callable[[str], bool],
    job: str | None,
    state: str | None,
    cursor: str | None,
    limit: int,
) -> TaskList:
    """`sees` says of a user whether the caller may see what is theirs."""
    if state is not None and state not in STATES:
        raise unprocessable(f"state is one of {', '.join(STATES)}, not {state!r}")
    at: JobId | None
    at, index = _parse_cursor(cursor) if cursor is not None else (None, 0)
    if at is None:
        at = await _older(backend, sees, None) if job is None else JobId(job)
    if at is not None and not sees(backend.user_of(at) or ""):
        raise not_found(f"job {at!r}")
    items: list[TaskAnswer] = []
    scanned = 0
    while at is not None:
        size = min(PAGE_MAX, limit if state is None else PAGE_MAX)
        found, total = await _window(backend, at, index, size)
        scanned += size
        for task in found:
            if state is None or task.state == state:
                if len(items) == limit:
                    return TaskList(items, task.id)
                items.append(task)
        index += size
        if index >= total:
            at, index = None if job is not None else await _older(backend, sees, at), 0
        if at is not None and (scanned >= SCAN_MAX or len(items) == limit):
            return TaskList(items, f"{at}.{index}")
    return TaskList(items, None)


def _parse_cursor(cursor: str) -> tuple[JobId, int]:
    parsed = parse_task_id(cursor)
    if parsed is None:
        raise unprocessable("the cursor is the `next` of the page before")
    return parsed


async def _older(backend: Backend, sees: Callable[[str], bool], job: JobId | None) -> JobId | None:
    """The next older job that the caller may see; the newest of all behind none."""
    size = 1
    while True:
        rows = await backend.read(lambda reader: reader.jobs(before=job, limit=size))  # noqa: B023
        for row in rows:
            if sees(row.opened.user):
                return row.opened.id
        if len(rows) < size:
            return None
        job, size = rows[-1].opened.id, PAGE_MAX


async def _window(
    backend: Backend, job: JobId, first: int, size: int
) -> tuple[list[TaskAnswer], int]:
    """The tasks `first` … `first + size - 1` of a job, and how many the job has.

    Live ones are read first: one that ends in between is then seen twice, not missed.
    """
    view = await job_view(backend, job)
    if first >= view.tasks:
        return [], view.tasks
    try:
        live = await ask_for(
            backend, LiveTasks, lambda request: ReadLiveTasks(request, job, first, size)
        )
    except NotFound:  # pruned since
        return [], 0
    tasks = {task.index: answers.running_task(task, b"") for task in live.tasks}
    for span in live.spans:
        ended = await backend.read(partial(_results, job=job, span=span))
        for finished in ended:
            tasks[finished.ended.index] = answers.finished_task(
                job, view.name, span.specification, view.created_at, finished, span.stage
            )
    return [tasks[index] for index in sorted(tasks)], view.tasks


def _results(reader: Reader, job: JobId, span: Span) -> list[Finished]:
    """All of them, although one read stops after a few megabytes of values."""
    found: list[Finished] = []
    first, end = span.first, span.first + span.count
    while first < end:
        results = reader.results_by_index(job, first=first, limit=end - first)
        if not results:
            break
        for result in results:
            again = result.ended.number > 1
            attempts = reader.ended_attempts(job, result.ended.index) if again else []
            found.append(Finished(result.ended, attempts))
        first = results[-1].ended.index + 1
    return found
