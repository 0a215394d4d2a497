"""`POST /api/v1/tasks`: one task, and with `?wait` its result in the same exchange."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from mycel.api.answers import answers
from mycel.api.answers.answers import Finished, TaskAnswer
from mycel.api.authentication import Caller
from mycel.api.backend import Backend, ask_for, submitting
from mycel.api.http.exchange import Connected, Receive, Request, Scope, Send, answer, encode
from mycel.api.http.problems import Headers
from mycel.api.submission import conversion, named_files
from mycel.api.submission.bodies import decode_task
from mycel.core.events import Submit
from mycel.core.identifiers import RequestId
from mycel.core.views import SubmittedView, TaskIsOver

from . import job_routes, task_routes

TASKS_PATH: Final = "/api/v1/tasks"


async def submit_task(request: Request) -> None:
    wait = request.query().wait_seconds()
    raw = await request.body()
    caller = request.caller
    key = job_routes.scoped_key(request.header(b"idempotency-key"), caller.user, "tasks")
    with Connected(request.receive), request.waiting(wait):
        task, again = await _submit(request.backend, caller, raw, key, wait)
    await request.answer(task, 200 if again else 201, _location(task))


def _location(task: TaskAnswer) -> Headers:
    return [(b"location", f"{TASKS_PATH}/{task.id}".encode())]


async def _submit(
    backend: Backend, caller: Caller, raw: bytes, key: str, wait: float
) -> tuple[TaskAnswer, bool]:
    """The task, and whether the same request had come before.

    Submit, run and result are one question to the machine when the client waits. With a key they
    are two: the job may be an earlier one, and only the first answer tells its id.
    """
    submit = submit_of(backend, caller, raw, key, wait)
    if named_files.have_files(submit, raw):
        await named_files.admit(backend, caller, submit)
    if not submit.wait:
        submitted = await ask_for(backend, SubmittedView, submitting(submit))
        job = submitted.job.job_id
        await task_routes.wait(backend, job, 0, wait)
        return await task_routes.read(backend, job, 0), submitted.again
    reply: object = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait):
            reply = await backend.ask(submitting(submit))
    return await _waited(backend, submit, reply), False


def submit_of(backend: Backend, caller: Caller, raw: bytes, key: str, wait: float) -> Submit:
    """The event that the body of a single task asks for."""
    body = decode_task(raw)
    specification = backend.names.of_caller(conversion.specification(body), caller.user)
    job_routes.check(backend, caller, specification)
    batch = conversion.single_batch(body)
    return Submit(
        request=RequestId(0),
        job_id=job_routes.new_id() if body.id is None else conversion.job_id(body.id),
        name=body.name,
        user=caller.user,
        specification=specification,
        count=1,
        arguments=batch.arguments,
        close=True,
        idempotency_key=key,
        body_digest=job_routes.digest_of(raw) if key or body.id else b"",
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
    await answer(send, 201, encode(task), _location(task))


async def _waited(backend: Backend, submit: Submit, reply: object) -> TaskAnswer:
    """`reply` is what came of waiting, if anything."""
    task = ended_at_once(submit, reply)
    return task or await task_routes.read(backend, submit.job_id, 0)


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
