"""The rarer routes, on Litestar. Imported when the first of them is asked for: a scheduler that
only runs jobs, and is watched, does without it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from litestar import Litestar, MediaType, Request, Response, get, post
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream

from mycel.api.answers.answers import ResultAnswer, RevocationsAnswer, encode
from mycel.api.http.exchange import CALLER, Connected, Gone, Query, Receive, Scope
from mycel.api.http.problems import MEDIA_TYPE, Problem, from_exception
from mycel.api.submission.bodies import decode_revocations

from .authentication import Caller
from .backend import Backend
from .router import document
from .routes import (
    model_routes,
    network_routes,
    service_routes,
    task_routes,
    worker_routes,
)

AnyRequest = Request[Any, Any, Any]


def create(backend: Backend) -> Litestar:
    return Litestar(
        route_handlers=[*_tasks(backend), *_rest(backend)],
        exception_handlers={Exception: _answer_exception},
        openapi_config=None,
        logging_config=None,
    )


def _json(answer: msgspec.Struct) -> Response[bytes]:
    return Response(encode(answer), media_type=MediaType.JSON)


def _query(request: AnyRequest, *known: str) -> Query:
    return Query(cast(Scope, request.scope), *known)


def _caller(request: AnyRequest) -> Caller:
    caller: Caller = cast(Scope, request.scope)[CALLER]
    return caller


def _named(request: AnyRequest) -> str:
    """The task or worker in the path."""
    return str(request.path_params["id"])


def _tasks(backend: Backend) -> Sequence[HTTPRouteHandler]:
    @get("/api/v1/tasks/{id:str}/explain")
    async def explain(request: AnyRequest) -> Response[bytes]:
        _query(request)
        return _json(await task_routes.explain(backend, _named(request)))

    @get("/api/v1/tasks/{id:str}/result")
    async def result(request: AnyRequest) -> Response[bytes] | Stream:
        wait = _query(request, "wait").wait_seconds()
        task_id = _named(request)
        with Connected(cast(Receive, request.receive)):
            ended = await task_routes.ended(backend, task_id, wait)
        if ended.value_size:
            return Stream(
                task_routes.large_result(backend, task_id, ended), media_type=MediaType.JSON
            )
        task = await task_routes.read_after_wait(backend, task_id, 0)
        if task.state != "succeeded":
            was = "" if task.state == "failed" else "was "
            why = task.error or task.reason or "no result"
            raise Problem(409, f"task {task_id} {was}{task.state}: {why}")
        return _json(task.result or ResultAnswer())

    return [explain, result]


def _rest(backend: Backend) -> Sequence[HTTPRouteHandler]:
    @get("/api/v1/models")
    async def list_models(request: AnyRequest) -> Response[bytes]:
        _query(request)
        return _json(await model_routes.list_models(backend, _caller(request)))

    @get("/api/v1/services")
    async def list_services(request: AnyRequest) -> Response[bytes]:
        _query(request)
        return _json(await service_routes.list_services(backend, _caller(request)))

    @get("/api/v1/peers")
    async def list_peers(request: AnyRequest) -> Response[bytes]:
        _query(request)
        return _json(network_routes.list_peers(backend.network))

    @get("/api/v1/swarm")
    async def swarm(request: AnyRequest) -> Response[bytes]:
        _query(request)
        return _json(backend.network.status())

    @post("/api/v1/swarm/ping", status_code=200)
    async def ping(request: AnyRequest) -> Response[bytes]:
        _query(request)
        return _json(await network_routes.ping(backend.network, await request.body()))

    @post("/api/v1/workers/{id:str}/drain", status_code=200)
    async def drain(request: AnyRequest) -> Response[bytes]:
        seconds = _query(request, "hand_back_after").seconds("hand_back_after")
        caller: Caller = request.scope[CALLER]  # type: ignore[typeddict-item]
        return _json(await worker_routes.close(backend, caller, _named(request), True, seconds))

    @post("/api/v1/workers/{id:str}/resume", status_code=200)
    async def resume(request: AnyRequest) -> Response[bytes]:
        _query(request)
        caller: Caller = request.scope[CALLER]  # type: ignore[typeddict-item]
        return _json(await worker_routes.close(backend, caller, _named(request), False, None))

    @post("/api/v1/revocations", status_code=200)
    async def revoke(request: AnyRequest) -> Response[bytes]:
        _query(request)
        body = decode_revocations(await request.body())
        return _json(RevocationsAnswer(backend.revoke(body.records)))

    @get("/openapi.json", sync_to_thread=False)
    def openapi() -> Response[bytes]:
        return Response(document(), media_type=MediaType.JSON)

    return [
        drain,
        resume,
        list_models,
        list_services,
        list_peers,
        swarm,
        ping,
        revoke,
        openapi,
    ]


def _answer_exception(request: AnyRequest, error: Exception) -> Response[bytes]:
    if isinstance(error, Gone):
        return Response(b"", status_code=499)  # nobody will read it
    problem = from_exception(error)
    if problem is None and isinstance(error, HTTPException) and error.status_code in (404, 405):
        problem = Problem(error.status_code, error.detail)
    if problem is None:
        logging.getLogger("mycel.api").error("%s failed", request.url.path, exc_info=error)
        problem = Problem(500, "a fault of Mycel's own; its log says more")
    headers = {name.decode(): value.decode() for name, value in problem.headers}
    return Response(
        problem.encode(),
        status_code=problem.status,
        headers=headers,
        media_type=MEDIA_TYPE.decode(),
    )
