"""The OpenAI-compatible routes: a request is a task, its tokens are streamed as they come.

GET  /v1/models, /v1/models/{name}
POST /v1/chat/completions, /v1/completions, /v1/embeddings

The request travels to the model's server as it is, and so does the answer back. A worker that
is lost before the first token is replaced by another, and the client sees nothing of it; after
the first token the stream ends with an error, because the rest would be another text.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

import msgspec

from mycel.api.backend import Backend, Pieces, ask_for, submitting
from mycel.api.http.exchange import Handler, Request, Send, answer, hang_up
from mycel.api.http.problems import Problem
from mycel.core.errors import Refusal, Unprocessable
from mycel.core.events import CancelTask, ReadWorkers, Submit
from mycel.core.identifiers import RequestId
from mycel.core.journal import TaskEnded
from mycel.core.model.failures import BAD_INPUT, INPUT_MISSING, TIMEOUT, upstream_status
from mycel.core.model.jobs import Specification
from mycel.core.model.json_depth import DEPTH_MAX, nests_too_deeply
from mycel.core.model.resources import Requirements
from mycel.core.model.work import Work
from mycel.core.views import TaskIsOver, WorkerView

from . import job_routes

PREFIX: Final = "/v1/"
_EVENTS: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
_DONE: Final = b"data: [DONE]\n\n"
_STATUS: Final = {TIMEOUT: 504, BAD_INPUT: 400, INPUT_MISSING: 400}
"""For failures that no model server gave a status of its own."""
_PASSED_ON: Final = (408, 409, 413, 422, 429)
"""Clients react to these by themselves. Others are about the worker and its server: a 401 there
does not mean that the caller's token is wrong."""
_KINDS: Final = {408: "timeout_error", 429: "rate_limit_error"}


class OpenAiError(Exception):
    """Answered in the form that OpenAI's clients read."""

    def __init__(self, status: int, message: str, kind: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.document = {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _answering(handler: Handler) -> Handler:
    async def answering(request: Request) -> None:
        try:
            await handler(request)
        except OpenAiError as error:
            await answer(request.send, error.status, msgspec.json.encode(error.document))
        except Refusal as refusal:
            refused = OpenAiError(503, str(refusal), "server_error")
            await answer(request.send, refused.status, msgspec.json.encode(refused.document))

    return answering


@_answering
async def list_models(request: Request) -> None:
    found = await _models(request)
    await answer(request.send, 200, msgspec.json.encode({"object": "list", "data": found}))


@_answering
async def read_model(request: Request) -> None:
    for model in await _models(request):
        if model["id"] == request.name:
            await answer(request.send, 200, msgspec.json.encode(model))
            return
    raise _no_model(request.name)


async def _models(request: Request) -> list[dict[str, Any]]:
    backend = request.backend
    workers: list[WorkerView] = await ask_for(backend, list, ReadWorkers)
    full = {name for worker in workers for name in worker.capabilities.models}
    written = {backend.names.as_written(name, request.caller.user) for name in full}
    names = sorted(name for name in written if name is not None)
    alike = {"object": "model", "created": 0, "owned_by": "mycel"}
    return [{"id": name, **alike} for name in names]


@_answering
async def call_model(request: Request) -> None:
    body = _body(await request.body())
    backend, send = request.backend, request.send
    submit = _submission(request, body)
    job = submit.job_id
    with request.waiting(math.inf), backend.streaming(job) as pieces:
        hung_up = asyncio.ensure_future(hang_up(request.receive))
        ended = asyncio.ensure_future(_run(backend, submit, body["model"]))
        try:
            if body.get("stream") is True:
                await _stream(send, pieces, ended, hung_up)
            else:
                await _whole(send, ended, hung_up)
        finally:
            hung_up.cancel()
            if not ended.done():  # nobody waits for it any more
                ended.cancel()
                await backend.ask(lambda number: CancelTask(number, job, 0))


def _submission(request: Request, body: dict[str, Any]) -> Submit:
    backend, caller = request.backend, request.caller
    route = request.scope["path"].removeprefix(PREFIX)
    try:
        full = backend.names.meant(body["model"], caller.user)
    except Problem as problem:
        raise OpenAiError(400, problem.detail, "invalid_request_error") from None
    specification = Specification(Work("model", model=full), Requirements())
    job_routes.check(backend, caller, specification)
    return Submit(
        request=RequestId(0),
        job_id=job_routes.new_id(),
        name=route,
        user=caller.user,
        specification=specification,
        count=1,
        arguments=msgspec.json.encode([{"openai": {"route": route, "body": body}}]),
        close=True,
        require_satisfiable=True,
        wait=True,
    )


async def _run(backend: Backend, submit: Submit, model: str) -> TaskEnded:
    """Submits the task and waits for its end."""
    try:
        over = await ask_for(backend, TaskIsOver, submitting(submit))
    except Unprocessable:
        raise _no_model(model) from None
    assert over.ended is not None, "whoever waits for a task's end is told it"
    return over.ended


def _body(raw: bytes) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise OpenAiError(400, f"the body is no JSON: {error}", "invalid_request_error") from None
    if nests_too_deeply(raw):
        text = f"the body is nested more than {DEPTH_MAX} levels deep"
        raise OpenAiError(400, text, "invalid_request_error")
    if not isinstance(body, dict) or not isinstance(body.get("model"), str) or not body["model"]:
        raise OpenAiError(400, "the body is an object with a model", "invalid_request_error")
    return body


def _no_model(name: str) -> OpenAiError:
    return OpenAiError(
        404,
        f"no known worker serves the model {name!r}; GET /v1/models lists those that are served",
        "invalid_request_error",
        "model_not_found",
    )


async def _whole(
    send: Send, ended: asyncio.Future[TaskEnded], hung_up: asyncio.Future[None]
) -> None:
    await asyncio.wait((ended, hung_up), return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        await answer(send, 200, bytes(_result(ended.result())))


class _Value(msgspec.Struct):
    json: msgspec.Raw


def _result(end: TaskEnded) -> msgspec.Raw:
    ended = _ended(end)
    return msgspec.json.decode(ended.value, type=_Value).json


def _ended(end: TaskEnded) -> TaskEnded:
    if end.state == "succeeded":
        return end
    status = _status_of(end.code)
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    raise OpenAiError(status, end.error or f"the request was {end.state}", kind, end.code or None)


def _status_of(code: str) -> int:
    upstream = upstream_status(code)
    if upstream is None:
        return _STATUS.get(code, 502)
    if upstream in _PASSED_ON:
        return upstream
    return 400 if upstream < 500 else 502


async def _stream(
    send: Send,
    pieces: Pieces,
    ended: asyncio.Future[TaskEnded],
    hung_up: asyncio.Future[None],
) -> None:
    started = 0
    """The number of the attempt whose tokens the client has seen."""
    while not hung_up.done():
        for number, piece in pieces.take():
            if not started and piece:
                await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
                started = number
            if started and (number != started or not piece):
                await _break_off(
                    send, "the worker, or its model, was lost in the middle of the answer"
                )
                return
            if piece:
                await _event(send, piece)
        if ended.done():
            await _end(send, ended, started)
            return
        await pieces.more(ended, hung_up)


async def _end(send: Send, ended: asyncio.Future[TaskEnded], started: int) -> None:
    try:
        _ended(ended.result())
    except OpenAiError as error:
        if not started:
            raise
        await _break_off(send, str(error))
        return
    if not started:  # a stream without a single token
        await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
    await send({"type": "http.response.body", "body": _DONE})


async def _event(send: Send, data: bytes) -> None:
    body = b"data: " + data + b"\n\n"
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _break_off(send: Send, message: str) -> None:
    """OpenAI's clients raise on an event with an error in it."""
    await _event(send, msgspec.json.encode(OpenAiError(502, message, "server_error").document))
    await send({"type": "http.response.body", "body": b""})
