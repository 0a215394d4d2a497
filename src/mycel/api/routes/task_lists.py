"""Lists of tasks. They go through the jobs, newest first, and through each job's tasks by index. A
cursor is the id of the first task that was not looked at."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
from msgspec import UnsetType

from mycel.api.answers import answers
from mycel.api.answers.answers import Finished, TaskAnswer, TaskList
from mycel.api.answers.file_answers import with_files
from mycel.api.backend import Backend, ask_for
from mycel.api.http.exchange import Request
from mycel.api.http.problems import not_found, unprocessable
from mycel.blobs.claims import OutputsRecord
from mycel.core.errors import NotFound
from mycel.core.events import ReadLiveTasks
from mycel.core.identifiers import JobId, is_job_id, parse_task_id
from mycel.core.model.jobs import Specification
from mycel.core.model.sweeps import Sweep
from mycel.core.states import TaskState
from mycel.core.views import LiveTasks, Span
from mycel.store.interface import Reader

from .list_filters import JobFilter, one_state
from .task_routes import job_view

PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 1000
SCAN_MAX: Final = 20_000
"""So many tasks are looked at for one page, or jobs; a filter that finds little ends it early."""
SWEPT_BYTES_MAX: Final = 4 << 20
"""Of arguments that a list computes; tasks behind that are shown without."""
BEHIND_ALL: Final = 9_999_999_999
"""As the index of a cursor: the job is through."""
STATES: Final = tuple(TaskState)
TAKING_ARGUMENTS: Final = ("python", "process")

Left = dict[tuple[int, int], OutputsRecord]
"""What tasks have left, by index and attempt."""


class Wanted(msgspec.Struct, frozen=True):
    jobs: JobFilter
    job: JobId | None
    state: str | None
    stage: str

    def takes(self, task: TaskAnswer) -> bool:
        return (self.state is None or task.state == self.state) and (
            not self.stage or task.stage == self.stage
        )


async def list_tasks(request: Request) -> None:
    query = request.query()
    job = query.text("job")
    if job is not None and not is_job_id(job):
        raise not_found(f"job {job!r}")
    wanted = Wanted(
        JobFilter.of(query, request.caller.sees),
        None if job is None else JobId(job),
        one_state(query, STATES),
        query.text("stage") or "",
    )
    limit = query.integer("limit", PAGE_DEFAULT, 1, PAGE_MAX)
    await request.answer(await _page(request.backend, wanted, query.text("cursor"), limit))


async def _page(backend: Backend, wanted: Wanted, cursor: str | None, limit: int) -> TaskList:
    at: JobId | None
    at, index = _parse_cursor(cursor) if cursor is not None else (None, 0)
    if at is None:
        at, index = await _older(backend, wanted, None) if wanted.job is None else (wanted.job, 0)
    if at is not None and not wanted.jobs.sees(backend.user_of(at) or ""):
        raise not_found(f"job {at!r}")
    if wanted.job is not None and not wanted.jobs.is_open:
        row = await backend.read(lambda reader: reader.job(wanted.job or JobId("")))
        if row is None or not wanted.jobs.takes(row.opened):
            return TaskList([], None)
    filtered = wanted.state is not None or wanted.stage
    items: list[TaskAnswer] = []
    scanned = 0
    while at is not None:
        size = PAGE_MAX if filtered else min(PAGE_MAX, limit)
        found, total = await _window(backend, at, index, size)
        scanned += size
        for task in found:
            if wanted.takes(task):
                if len(items) == limit:
                    return TaskList(items, task.id)
                items.append(task)
        index += size
        if index >= total:
            at, index = (None, 0) if wanted.job else await _older(backend, wanted, at)
        is_enough = index == BEHIND_ALL or scanned >= SCAN_MAX or len(items) == limit
        if at is not None and is_enough:
            return TaskList(items, f"{at}.{index}")
    return TaskList(items, None)


def _parse_cursor(cursor: str) -> tuple[JobId, int]:
    parsed = parse_task_id(cursor)
    if parsed is None:
        raise unprocessable("the cursor is the `next` of the page before")
    return parsed


async def _older(backend: Backend, wanted: Wanted, job: JobId | None) -> tuple[JobId | None, int]:
    """The next older job that the list is of, from its first task; the newest of all behind
    none. Where a filter leaves out very many, it is the last that was looked at, behind all of
    its tasks."""
    size, scanned = 1, 0
    last_own: JobId | None = None
    while True:
        rows = await backend.read(lambda reader: reader.jobs(before=job, limit=size))  # noqa: B023
        for row in rows:
            if wanted.jobs.takes(row.opened):
                return row.opened.id, 0
            if wanted.jobs.sees(row.opened.user):
                last_own = row.opened.id
                scanned += 1
        if len(rows) < size:
            return None, 0
        if scanned >= SCAN_MAX and last_own is not None:
            return last_own, BEHIND_ALL
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
    arguments = await _arguments(backend, job, live.spans)
    tasks = {
        task.index: answers.running_task(task, arguments.get(task.index, b""))
        for task in live.tasks
    }
    left = await _left(backend, job, live.spans)
    for span in live.spans:
        ended = await backend.read(partial(_results, job=job, span=span, arguments=arguments))
        for finished in ended:
            task = answers.finished_task(
                job, view.name, span.specification, view.created_at, finished, span.stage
            )
            tasks[finished.ended.index] = _with_files(task, finished, left)
    return [tasks[index] for index in sorted(tasks)], view.tasks


async def _arguments(backend: Backend, job: JobId, spans: list[Span]) -> dict[int, bytes]:
    """Of each task, as far as they are short enough for a list."""
    found: dict[int, bytes] = {}
    for span in spans:
        sweep = span.specification.sweep
        if sweep is not None:
            found |= _swept(sweep, range(span.first, span.first + span.count))
        elif _takes_arguments(span.specification):
            look = partial(_stretch, job=job, span=span)
            found |= await backend.read(look)
    return found


def _swept(sweep: Sweep, indexes: range) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    size = 0
    for index in indexes:
        found[index] = sweep.arguments(index)
        size += len(found[index])
        if size > SWEPT_BYTES_MAX:
            break
    return found


def _takes_arguments(specification: Specification) -> bool:
    return specification.work.driver in TAKING_ARGUMENTS


def _stretch(reader: Reader, job: JobId, span: Span) -> dict[int, bytes]:
    return reader.arguments_by_index(job, first=span.first, limit=span.count)


async def _left(backend: Backend, job: JobId, spans: list[Span]) -> Left:
    """What the tasks have left, if any of them was to leave something."""
    if backend.blobs is None or all(span.specification.work.outputs is None for span in spans):
        return {}
    first, count = spans[0].first, sum(span.count for span in spans)
    return await backend.blobs.outputs_of_job(job, first, count)


def _with_files(task: TaskAnswer, finished: Finished, left: Left) -> TaskAnswer:
    declared, attempt = task.outputs, finished.ended.attempt
    found = None if attempt is None else left.get((finished.ended.index, attempt))
    if found is None or isinstance(declared, UnsetType):
        return task
    return msgspec.structs.replace(task, outputs=with_files(declared, found))


def _results(reader: Reader, job: JobId, span: Span, arguments: dict[int, bytes]) -> list[Finished]:
    """All of them, although one read stops after a few megabytes of values."""
    found: list[Finished] = []
    first, end = span.first, span.first + span.count
    while first < end:
        results = reader.results_by_index(job, first=first, limit=end - first)
        if not results:
            break
        for result in results:
            index, again = result.ended.index, result.ended.number > 1
            attempts = reader.ended_attempts(job, index) if again else []
            found.append(Finished(result.ended, attempts, arguments.get(index, b"")))
        first = results[-1].ended.index + 1
    return found
