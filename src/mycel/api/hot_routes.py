"""The routes that carry the load, as raw ASGI: a framework costs more than the rest of them.

POST /api/v1/tasks                 one exchange from submit to result, with ?wait
GET, DELETE /api/v1/tasks/{id}, /api/v1/jobs/{id}
GET  /api/v1/tasks, /api/v1/jobs   pages of them
POST /api/v1/jobs
POST /api/v1/jobs/{id}/tasks       batches
POST /api/v1/jobs/{id}/close
GET  /api/v1/jobs/{id}/results     a stream of lines
GET  /api/v1/…/logs                streams that last, with ?follow
GET  /api/v1/events                a stream that lasts
GET  /api/v1/workers, …/stats      asked again and again by whoever waits or watches, so that
GET  /metrics                      a swarm that only works needs no framework in its memory
GET  /healthz, /readyz             they must not wait for one
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from mycel.api.answers.answers import Finished, TaskAnswer, encode
from mycel.api.http.caller_limits import Crowd, Limits
from mycel.api.http.exchange import (
    CALLER,
    Connected,
    Query,
    Receive,
    Scope,
    Send,
    answer,
    check_media_type,
    header,
    read_body,
)
from mycel.api.http.problems import Headers, Problem
from mycel.api.submission.bodies import decode_task
from mycel.core.events import Submit
from mycel.core.identifiers import JobId
from mycel.core.views import SubmittedView, TaskIsOver

from .answers import answers
from .authentication import Caller
from .backend import Backend
from .routes import (
    event_routes,
    job_routes,
    log_routes,
    result_routes,
    task_routes,
    worker_routes,
)
from .submission import conversion, named_files

PREFIX: Final = "/api/v1/"
TASKS_PATH: Final = f"{PREFIX}tasks"
_TASK: Final = f"{PREFIX}tasks/"
_JOBS: Final = f"{PREFIX}jobs"
_JOB: Final = f"{PREFIX}jobs/"
_PAGE_DEFAULT: Final = 100
_METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_OK: Final = b'{"status":"ok"}'


Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class HotRoutes:
    def __init__(self, backend: Backend, limits: Limits, crowd: Crowd) -> None:
        self._backend = backend
        self._limits = limits
        self._crowd = crowd
        self._read: dict[str, Handler] = {
            TASKS_PATH: self._list_tasks,
            _JOBS: self._list_jobs,
            f"{PREFIX}events": self._events,
            f"{PREFIX}workers": self._workers,
            f"{PREFIX}stats": self._stats,
            "/metrics": self._metrics,
        }

    def find(self, method: str, path: str) -> Handler | None:
        """The handler of a hot route; the others are the framework's."""
        if path == TASKS_PATH and method == "POST":
            return self._submit_task
        if path.startswith(_TASK):
            match method, path[len(_TASK) :].partition("/")[1:]:
                case "GET", ("", ""):
                    return self._read_task
                case "DELETE", ("", ""):
                    return self._cancel_task
                case "GET", ("/", "logs"):
                    return self._logs
            return None
        if path == _JOBS and method == "POST":
            return self._submit_job
        if path.startswith(_JOB):
            match method, path[len(_JOB) :].partition("/")[1:]:
                case "GET", ("", ""):
                    return self._read_job
                case "DELETE", ("", ""):
                    return self._cancel_job
                case "POST", ("/", "tasks"):
                    return self._append
                case "POST", ("/", "close"):
                    return self._close
                case "GET", ("/", "results"):
                    return self._results
                case "GET", ("/", "logs"):
                    return self._job_logs
        return self._read.get(path) if method == "GET" else None

    def find_open(self, method: str, path: str) -> Handler | None:
        """The routes that need no token."""
        if method == "GET" and path == "/healthz":
            return self._healthy
        if method == "GET" and path == "/readyz":
            return self._ready
        return None

    async def _submit_task(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"]
        wait = Query(scope, "wait").wait_seconds() if query else 0.0
        check_media_type(scope)
        raw = await read_body(scope, receive, self._limits.request_bytes)
        caller: Caller = scope[CALLER]
        key = job_routes.scoped_key(header(scope, b"idempotency-key"), caller.user, "tasks")
        with Connected(receive), self._waiting(scope, wait):
            task, again = await _submit_task(self._backend, caller, raw, key, wait)
        await answer(send, 200 if again else 201, encode(task), _location("tasks", task.id))

    async def _read_task(self, scope: Scope, receive: Receive, send: Send) -> None:
        wait = Query(scope, "wait").wait_seconds()
        with Connected(receive), self._waiting(scope, wait):
            task = await task_routes.read_after_wait(
                self._backend, scope["path"][len(_TASK) :], wait
            )
        await answer(send, 200, encode(task))

    async def _cancel_task(self, scope: Scope, _receive: Receive, send: Send) -> None:
        Query(scope)
        task = await task_routes.cancel(self._backend, scope["path"][len(_TASK) :])
        await answer(send, 200, encode(task))

    async def _list_tasks(self, scope: Scope, _receive: Receive, send: Send) -> None:
        query = Query(scope, "job", "state", "cursor", "limit")
        job = query.text("job")
        caller: Caller = scope[CALLER]
        found = await task_routes.list_tasks(
            self._backend,
            caller.sees,
            job=None if job is None else job_routes.parse(job),
            state=query.text("state"),
            cursor=query.text("cursor"),
            limit=query.integer("limit", _PAGE_DEFAULT, 1, task_routes.PAGE_MAX),
        )
        await answer(send, 200, encode(found))

    async def _logs(self, scope: Scope, receive: Receive, send: Send) -> None:
        task_id = scope["path"][len(_TASK) :].partition("/")[0]
        with self._lasting(scope):
            await log_routes.of_task(self._backend, task_id, scope, receive, send)

    async def _job_logs(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._lasting(scope):
            await log_routes.of_job(self._backend, _job_in(scope), scope, receive, send)

    async def _submit_job(self, scope: Scope, receive: Receive, send: Send) -> None:
        dry_run = Query(scope, "dry_run").flag("dry_run")
        check_media_type(scope)
        limit = self._limits.request_bytes
        raw = await read_body(scope, receive, limit)
        caller: Caller = scope[CALLER]
        if dry_run:
            found = await job_routes.preview(self._backend, caller, raw, limit)
            await answer(send, 200, encode(found))
            return
        key = job_routes.scoped_key(header(scope, b"idempotency-key"), caller.user, "jobs")
        submitted = await job_routes.submit(self._backend, caller, raw, key, limit)
        body = encode(answers.job(submitted.job))
        place = _location("jobs", submitted.job.job_id)
        await answer(send, 200 if submitted.again else 201, body, place)

    async def _list_jobs(self, scope: Scope, _receive: Receive, send: Send) -> None:
        query = Query(scope, "prefix", "cursor", "limit")
        found = await job_routes.list_jobs(
            self._backend,
            scope[CALLER],
            prefix=query.text("prefix"),
            cursor=query.text("cursor"),
            limit=query.integer("limit", _PAGE_DEFAULT, 1, 1000),
        )
        await answer(send, 200, encode(found))

    async def _read_job(self, scope: Scope, receive: Receive, send: Send) -> None:
        wait = Query(scope, "wait").wait_seconds()
        with Connected(receive), self._waiting(scope, wait):
            job = await job_routes.read(self._backend, _job_in(scope), wait)
        await answer(send, 200, encode(job))

    async def _cancel_job(self, scope: Scope, _receive: Receive, send: Send) -> None:
        Query(scope)
        await answer(send, 200, encode(await job_routes.cancel(self._backend, _job_in(scope))))

    async def _append(self, scope: Scope, receive: Receive, send: Send) -> None:
        Query(scope)
        check_media_type(scope)
        raw = await read_body(scope, receive, self._limits.request_bytes)
        batch = await job_routes.append(self._backend, scope[CALLER], _job_in(scope), raw)
        await answer(send, 200 if batch.again else 201, encode(batch))

    async def _close(self, scope: Scope, _receive: Receive, send: Send) -> None:
        Query(scope)
        await answer(send, 200, encode(await job_routes.close(self._backend, _job_in(scope))))

    async def _results(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = Query(scope, "after", "follow")
        after = query.integer("after", 0, 0, 1 << 60)
        job = job_routes.parse(_job_in(scope))
        with self._lasting(scope):
            await result_routes.stream(
                self._backend, job, after, query.flag("follow"), receive, send
            )

    async def _events(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._lasting(scope):
            await event_routes.stream(self._backend, scope, receive, send)

    def _waiting(self, scope: Scope, wait: float) -> AbstractContextManager[None]:
        caller: Caller = scope[CALLER]
        return self._crowd.waits.held(caller.user) if wait else contextlib.nullcontext()

    def _lasting(self, scope: Scope) -> AbstractContextManager[None]:
        """Whether it lasts is the client's choice, and how slowly it reads."""
        caller: Caller = scope[CALLER]
        return self._crowd.streams.held(caller.user)

    async def _workers(self, scope: Scope, _receive: Receive, send: Send) -> None:
        Query(scope)
        await answer(send, 200, encode(await worker_routes.list_workers(self._backend)))

    async def _stats(self, scope: Scope, _receive: Receive, send: Send) -> None:
        Query(scope)
        await answer(send, 200, encode(await worker_routes.stats(self._backend)))

    async def _metrics(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await answer(send, 200, self._backend.prometheus(), media_type=_METRICS_TYPE)

    async def _healthy(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await answer(send, 200, _OK)

    async def _ready(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        if not self._backend.ready:
            raise Problem(
                503,
                "the scheduler is stopping, or its disk takes nothing",
                headers=[(b"retry-after", b"1")],
            )
        await answer(send, 200, _OK)


def _job_in(scope: Scope) -> str:
    return str(scope["path"][len(_JOB) :].partition("/")[0])


def _location(collection: str, identifier: str) -> Headers:
    return [(b"location", f"{PREFIX}{collection}/{identifier}".encode())]


async def _submit_task(
    backend: Backend, caller: Caller, raw: bytes, key: str, wait: float
) -> tuple[TaskAnswer, bool]:
    """The task, and whether the same request had come before.

    Submit, run and result are one question to the machine when the client waits. With a
    key they are two: then the job may be an earlier one, whose id only the first tells.
    """
    submit = submit_of(backend, caller, raw, key, wait)
    if named_files.have_files(submit, raw):
        await named_files.admit(backend, caller, submit)
    if not submit.wait:
        return await _submit_and_read(backend, submit, wait)
    reply: object = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait):
            reply = await backend.ask(
                lambda request: msgspec.structs.replace(submit, request=request)
            )
    return await _waited(backend, submit, reply), False


def submit_of(backend: Backend, caller: Caller, raw: bytes, key: str, wait: float) -> Submit:
    """The event that the body of a single task asks for."""
    body = decode_task(raw)
    specification = backend.names.of_caller(conversion.specification(body), caller.user)
    job_routes.check(backend, caller, specification)
    batch = conversion.single_batch(body)
    return Submit(
        request=0,  # type: ignore[arg-type]
        job_id=job_routes.new_id(),
        name=body.name,
        user=caller.user,
        specification=specification,
        count=1,
        arguments=batch.arguments,
        close=True,
        idempotency_key=key,
        body_digest=job_routes.digest_of(raw) if key else b"",
        require_satisfiable=body.require_satisfiable,
        wait=wait > 0 and not key,
    )


async def answer_waited(
    backend: Backend,
    submit: Submit,
    reply: object,
    _scope: Scope,
    _receive: Receive,
    send: Send,
) -> None:
    """The rest of an exchange that `express` began."""
    if isinstance(reply, Exception):
        raise reply
    task = await _waited(backend, submit, reply)
    await answer(send, 201, encode(task), _location("tasks", task.id))


async def _waited(backend: Backend, submit: Submit, reply: object) -> TaskAnswer:
    """`reply` is what came of waiting, if anything."""
    task = ended_at_once(submit, reply)
    if task is not None:
        return task
    return await task_routes.read(backend, submit.job_id, 0)


def ended_at_once(submit: Submit, reply: object) -> TaskAnswer | None:
    """The task, if it has ended and everything about it is at hand: earlier attempts are in
    the store."""
    if not isinstance(reply, TaskIsOver) or reply.ended is None or reply.ended.number > 1:
        return None
    if submit.specification.work.outputs is not None:
        return None  # where they are is in another book
    finished = Finished(reply.ended, [], submit.arguments[1:-1])
    return answers.finished_task(
        reply.job_id, reply.name, reply.specification, reply.created_at, finished
    )


async def _submit_and_read(
    backend: Backend, submit: Submit, wait: float
) -> tuple[TaskAnswer, bool]:
    submitted = task_routes.expect(
        await backend.ask(lambda request: msgspec.structs.replace(submit, request=request)),
        SubmittedView,
    )
    job: JobId = submitted.job.job_id
    await task_routes.wait(backend, job, 0, wait)
    return await task_routes.read(backend, job, 0), submitted.again
