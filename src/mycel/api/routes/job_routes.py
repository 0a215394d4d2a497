"""Jobs, as clients open, extend, read and cancel them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from functools import partial
from typing import Final

import msgspec
from blake3 import blake3

from mycel.api.answers import answers
from mycel.api.answers.answers import (
    BatchAnswer,
    JobAnswer,
    JobList,
    TaskCounts,
    iso,
    iso_or_none,
)
from mycel.api.authentication import Caller
from mycel.api.backend import Backend, ask_for, submitting
from mycel.api.http.exchange import Connected, Request
from mycel.api.http.problems import not_found, unprocessable
from mycel.api.submission import conversion, named_files, plans
from mycel.api.submission.bodies import decode_batch, decode_job
from mycel.api.submission.reruns import derived_again
from mycel.api.submission.samples import samples_of
from mycel.core.errors import NotFound
from mycel.core.events import Append, CancelJob, CloseJob, Submit, WaitJob
from mycel.core.identifiers import JobId, RequestId, is_job_id, ulid
from mycel.core.model.jobs import Specification
from mycel.core.model.task_files import mentions_files
from mycel.core.model.work import shape_of
from mycel.core.views import BatchView, JobView, PreviewView, SubmittedView
from mycel.store.interface import JobRow

from .list_filters import JobFilter, one_state
from .task_lists import PAGE_DEFAULT, PAGE_MAX
from .task_routes import job_view

JOBS_PATH: Final = "/api/v1/jobs"
KEY_LENGTH_MAX: Final = 255
SCAN_MAX: Final = 20_000
"""So many jobs are looked at for one page of those that a user may see."""
TERMINAL: Final = frozenset({"succeeded", "failed", "cancelled"})
STATES: Final = ("queued", "running", *sorted(TERMINAL))


_randomness: Final = random.Random(os.urandom(32)).randbytes
"""Seeded by the system once: an id has to be unique, it is no secret."""


def new_id() -> JobId:
    return ulid(time.time_ns() // 1_000_000, _randomness(10))


def digest_of(body: bytes) -> bytes:
    return blake3(body).digest()


def parse(text: str) -> JobId:
    if not is_job_id(text):
        raise not_found(f"job {text!r}")
    return JobId(text)


def scoped_key(raw: bytes | None, user: str, route: str) -> str:
    """An `Idempotency-Key` counts for one user and one route."""
    if raw is None:
        return ""
    key = raw.decode("latin-1").strip()
    if not key or len(key) > KEY_LENGTH_MAX:
        raise unprocessable(f"an Idempotency-Key has from 1 to {KEY_LENGTH_MAX} characters")
    return f"{user} {route} {key}"


def check(backend: Backend, caller: Caller, *specifications: Specification) -> None:
    """Whether the caller may have this run; then workers will be shown by what right."""
    for one in specifications:
        caller.check(shape_of(one.work, one.requirements, caller.user, one.priority))
    backend.keep_credential(caller.token, caller.rights)


async def submit_job(request: Request) -> None:
    dry_run = request.query().flag("dry_run")
    raw = await request.body()
    backend, caller, bytes_max = request.backend, request.caller, request.limits.request_bytes
    if dry_run:
        preview = await _submission(backend, caller, raw, "", bytes_max, dry_run=True)
        view = await ask_for(backend, PreviewView, submitting(preview))
        await request.answer(answers.preview(view, samples_of(preview)))
        return
    key = scoped_key(request.header(b"idempotency-key"), caller.user, "jobs")
    submitted = await submit(backend, caller, raw, key, bytes_max)
    location = [(b"location", f"{JOBS_PATH}/{submitted.job.job_id}".encode())]
    await request.answer(answers.job(submitted.job), 200 if submitted.again else 201, location)


async def submit(
    backend: Backend, caller: Caller, raw: bytes, key: str, bytes_max: int
) -> SubmittedView:
    submission = await _submission(backend, caller, raw, key, bytes_max)
    if named_files.have_files(submission, raw):
        await named_files.admit(backend, caller, submission)
    return await ask_for(backend, SubmittedView, submitting(submission))


async def _submission(
    backend: Backend, caller: Caller, raw: bytes, key: str, bytes_max: int, *, dry_run: bool = False
) -> Submit:
    body = decode_job(raw)
    if body.task is None and not body.stages:
        raise unprocessable("a job needs task or stages", "$")
    tasks = [body.task] if body.task is not None else [stage.task for stage in body.stages]
    derived = None
    if plans.is_simple(body):
        found = conversion.specification(tasks[0], "$.task")
        specification = backend.names.of_caller(found, caller.user)
        batch = conversion.job_batch(body, bytes_max)
    else:
        # In a thread: a few megabytes of parameters take longer than others should wait.
        derived = await asyncio.to_thread(plans.derived_from, body, bytes_max)
        derived = msgspec.structs.replace(
            derived,
            groups=tuple(
                (backend.names.of_caller(one, caller.user), stage) for one, stage in derived.groups
            ),
        )
        specification, batch = derived.groups[0][0], conversion.Batch(0, b"")
    groups = [specification] if derived is None else [one[0] for one in derived.groups]
    check(backend, caller, *groups)
    return Submit(
        request=RequestId(0),
        job_id=new_id() if body.id is None else conversion.job_id(body.id),
        name=body.name or tasks[0].name,
        user=caller.user,
        specification=specification,
        count=batch.count,
        arguments=batch.arguments,
        close=body.closed,
        idempotency_key=key,
        body_digest=digest_of(raw),
        require_satisfiable=any(task.require_satisfiable for task in tasks),
        derived=derived,
        dry_run=dry_run,
    )


async def rerun_job(request: Request) -> None:
    """As a new job of the caller's."""
    only = request.query().text("only")
    if only not in (None, "failed"):
        raise unprocessable(f"only is 'failed', not {only!r}")
    backend, caller, before = request.backend, request.caller, parse(request.name)
    key = scoped_key(request.header(b"idempotency-key"), caller.user, f"rerun {before}")
    defined = await backend.read(lambda reader: reader.definition(before))
    if defined is None:
        raise not_found(f"job {before!r}")
    again = partial(derived_again, defined, only_unsuccessful=only is not None)
    derived = await asyncio.to_thread(again)
    check(backend, caller, *(specification for specification, _ in derived.groups))
    submission = Submit(
        request=RequestId(0),
        job_id=new_id(),
        name=defined.opened.name,
        user=caller.user,
        specification=derived.groups[0][0],
        count=0,
        arguments=b"",
        close=True,
        idempotency_key=key,
        body_digest=digest_of(f"{before} {only}".encode()),
        derived=derived,
    )
    await named_files.admit(backend, caller, submission)
    submitted = await ask_for(backend, SubmittedView, submitting(submission))
    location = [(b"location", f"{JOBS_PATH}/{submitted.job.job_id}".encode())]
    await request.answer(answers.job(submitted.job), 200 if submitted.again else 201, location)


async def append_batch(request: Request) -> None:
    request.query()
    body = decode_batch(await request.body())
    job = parse(request.name)
    batch = conversion.appended_batch(body)
    if mentions_files(batch.arguments):
        await named_files.admit_batch(request.backend, request.caller, job, batch.arguments)
    view = await ask_for(
        request.backend,
        BatchView,
        lambda number: Append(number, job, body.batch, batch.count, batch.arguments, body.stage),
    )
    appended = BatchAnswer(view.job_id, view.batch, view.first, view.count, view.again)
    await request.answer(appended, 200 if view.again else 201)


async def close_job(request: Request) -> None:
    request.query()
    job = parse(request.name)
    view = await ask_for(request.backend, JobView, lambda number: CloseJob(number, job))
    await request.answer(answers.job(view))


async def cancel_job(request: Request) -> None:
    request.query()
    job = parse(request.name)
    view = await ask_for(request.backend, JobView, lambda number: CancelJob(number, job))
    await request.answer(answers.job(view))


async def read_job(request: Request) -> None:
    wait = request.query().wait_seconds()
    job = parse(request.name)
    with Connected(request.receive), request.waiting(wait):
        if wait:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await request.backend.ask(lambda number: WaitJob(number, job))
        view = await job_view(request.backend, job)
    await request.answer(answers.job(view))


async def list_jobs(request: Request) -> None:
    query = request.query()
    limit = query.integer("limit", PAGE_DEFAULT, 1, PAGE_MAX)
    prefix, ending = query.text("prefix"), query.text("ending")
    if prefix is not None or ending is not None:
        page = await _found(request.backend, request.caller, prefix or "", ending or "", limit)
    else:
        wanted = JobFilter.of(query, request.caller.sees)
        state = one_state(query, STATES)
        page = await _page(request.backend, wanted, state, query.text("cursor"), limit)
    await request.answer(page)


async def _found(backend: Backend, caller: Caller, prefix: str, ending: str, limit: int) -> JobList:
    """Those that the caller may see, whose ids begin and end with these."""
    ids = await backend.read(lambda reader: reader.find_jobs(prefix, PAGE_MAX, ending))
    own = [job for job in ids if caller.sees(backend.user_of(job) or "")][:limit]
    return JobList([answers.job(await job_view(backend, job)) for job in own], None)


async def _page(
    backend: Backend, wanted: JobFilter, state: str | None, cursor: str | None, limit: int
) -> JobList:
    """Newest first."""
    before = None if cursor is None else conversion.job_id(cursor, "")
    size = limit if wanted.is_open and state is None else PAGE_MAX
    items: list[JobAnswer] = []
    scanned = 0
    while len(items) < limit and scanned < SCAN_MAX:
        rows = await backend.read(lambda reader: reader.jobs(before=before, limit=size))  # noqa: B023
        scanned += size
        for row in rows:
            if len(items) == limit:
                break
            before = row.opened.id
            if not wanted.takes(row.opened) or (state and row.state not in ("", state)):
                continue
            job = await _of_row(backend, row)
            if state in (None, job.state):
                items.append(job)
        else:
            if len(rows) < size:
                return JobList(items, None)
    return JobList(items, before)


async def _of_row(backend: Backend, row: JobRow) -> JobAnswer:
    """A row does not say how many tasks run, nor how stages fare: the machine does."""
    if not row.state or row.opened.stages:
        try:
            return answers.job(await job_view(backend, row.opened.id))
        except NotFound:
            pass
    ended = row.succeeded + row.failed + row.cancelled
    return JobAnswer(
        id=row.opened.id,
        name=row.opened.name,
        user=row.opened.user,
        state=row.state or "queued",
        closed=row.closed,
        tasks=TaskCounts(row.tasks, row.tasks - ended, 0, row.succeeded, row.failed, row.cancelled),
        created_at=iso(row.opened.created_at),
        finished_at=iso_or_none(row.ended_at),
    )
