"""Every route that there is: the one table behind 404, 405 and `/openapi.json`."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

import msgspec

PROBLEMS: Final = {
    400: "The body is not JSON",
    401: "The token is missing or not good",
    403: "The token does not allow this",
    404: "There is no such thing",
    409: "It contradicts what is already there",
    408: "The body did not arrive in time",
    411: "The body's length is not said",
    413: "The body is too large",
    415: "The body is not JSON by its media type",
    416: "There is no such part of it",
    422: "Well-formed, and wrong; `path` says where",
    429: "A limit is reached for now; see Retry-After",
    503: "The scheduler is stopping",
    507: "There is no room for it",
}
_BODY: Final = (400, 408, 413, 415)


class Route(msgspec.Struct, frozen=True):
    method: str
    path: str
    summary: str
    answer: str = ""
    """Name of the answer's schema; or, with a slash in it, a media type."""
    body: str = ""
    query: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    problems: tuple[int, ...] = ()
    open: bool = False
    """It needs no token."""


ROUTES: Final = (
    Route(
        "POST",
        "/api/v1/tasks",
        "Submit a task; with ?wait, answer when it has ended or the time is up",
        "TaskAnswer",
        "TaskBody",
        ("wait",),
        (201, 200),
        (*_BODY, 422, 429),
    ),
    Route(
        "GET",
        "/api/v1/tasks",
        "List tasks, newest job first",
        "TaskList",
        query=("job", "state", "cursor", "limit"),
        problems=(404, 422),
    ),
    Route(
        "GET",
        "/api/v1/tasks/{task_id}",
        "Read a task",
        "TaskAnswer",
        query=("wait",),
        problems=(404, 422),
    ),
    Route(
        "DELETE",
        "/api/v1/tasks/{task_id}",
        "Cancel a task; again is fine",
        "TaskAnswer",
        problems=(404, 409, 422),
    ),
    Route(
        "GET",
        "/api/v1/tasks/{task_id}/logs",
        "What a task has written; with ?stream one stream as text, with ?follow as it comes: "
        "as server-sent events, or one stream as text",
        "LogsAnswer",
        query=("stream", "wait", "follow"),
        problems=(404, 422, 429),
    ),
    Route(
        "GET",
        "/api/v1/tasks/{task_id}/explain",
        "Why a task is where it is",
        "Explanation",
        problems=(404, 422),
    ),
    Route(
        "GET",
        "/api/v1/tasks/{task_id}/result",
        "The result of a task that succeeded",
        "ResultAnswer",
        query=("wait",),
        problems=(404, 409, 422),
    ),
    Route(
        "POST",
        "/api/v1/jobs",
        "Submit a job, or open one for batches; with ?dry_run, say what would come of it "
        "(a PreviewAnswer), and change nothing",
        "JobAnswer",
        "JobBody",
        ("dry_run",),
        statuses=(201, 200),
        problems=(*_BODY, 409, 422, 429),
    ),
    Route(
        "GET",
        "/api/v1/jobs",
        "List jobs, newest first",
        "JobList",
        query=("prefix", "cursor", "limit"),
        problems=(422,),
    ),
    Route(
        "GET",
        "/api/v1/jobs/{job_id}",
        "Read a job",
        "JobAnswer",
        query=("wait",),
        problems=(404, 422),
    ),
    Route("DELETE", "/api/v1/jobs/{job_id}", "Cancel a job", "JobAnswer", problems=(404, 409, 422)),
    Route(
        "POST",
        "/api/v1/jobs/{job_id}/tasks",
        "Append a numbered batch of tasks to an open job; the same batch again changes nothing",
        "BatchAnswer",
        "BatchBody",
        statuses=(201, 200),
        problems=(*_BODY, 404, 409, 422, 429),
    ),
    Route(
        "POST",
        "/api/v1/jobs/{job_id}/close",
        "No further batch will come",
        "JobAnswer",
        problems=(404, 409, 422),
    ),
    Route(
        "GET",
        "/api/v1/jobs/{job_id}/results",
        "Results as JSON lines, in the order of commits",
        "application/x-ndjson",
        query=("after", "follow"),
        problems=(404, 422),
    ),
    Route(
        "GET",
        "/api/v1/jobs/{job_id}/logs",
        "What a job's tasks write, as it comes, as server-sent events",
        "text/event-stream",
        query=("follow",),
        problems=(404, 422, 429),
    ),
    Route(
        "GET",
        "/api/v1/events",
        "What happens, as server-sent events; goes on behind Last-Event-ID, or ?after",
        "text/event-stream",
        query=("job", "task", "kinds", "follow", "after"),
        problems=(404, 422, 429),
    ),
    Route(
        "PUT",
        "/api/v1/blobs/{digest}",
        "Upload a file under its digest; goes on after a break with Content-Range",
        "BlobAnswer",
        "application/octet-stream",
        statuses=(201,),
        problems=(408, 409, 411, 413, 422, 507),
    ),
    Route(
        "GET",
        "/api/v1/blobs/{digest}",
        "Download a file of your uploads or your jobs; with Range a part of it",
        "application/octet-stream",
        statuses=(200, 206),
        problems=(404, 416, 422, 507),
    ),
    Route(
        "HEAD",
        "/api/v1/blobs/{digest}",
        "Its size; with 404, Upload-Offset says how much of it has come",
        "application/octet-stream",
        problems=(404, 422),
    ),
    Route(
        "POST",
        "/api/v1/blobs/missing",
        "Which of these you would have to upload",
        "MissingAnswer",
        "MissingBody",
        problems=(*_BODY, 422),
    ),
    Route("GET", "/api/v1/workers", "List workers", "WorkerList", problems=(422,)),
    Route("GET", "/api/v1/models", "List the models that are served", "ModelList", problems=(422,)),
    Route(
        "POST",
        "/api/v1/workers/{worker_id}/drain",
        "Let a worker take no new work; with ?hand_back_after, what still runs after so many "
        "seconds goes back to the queue",
        "WorkerAnswer",
        query=("hand_back_after",),
        problems=(404, 409, 422),
    ),
    Route(
        "POST",
        "/api/v1/workers/{worker_id}/resume",
        "Let a worker that was drained take work again",
        "WorkerAnswer",
        problems=(404, 409, 422),
    ),
    Route(
        "GET",
        "/api/v1/services",
        "List the jobs that keep models up",
        "ServiceList",
        problems=(422,),
    ),
    Route("GET", "/api/v1/peers", "List connected peers", "PeerList", problems=(422,)),
    Route(
        "GET", "/api/v1/swarm", "How this node stands in its swarm", "SwarmAnswer", problems=(422,)
    ),
    Route(
        "POST",
        "/api/v1/swarm/ping",
        "Measure the way to a peer and back",
        "PingAnswer",
        "PingBody",
        problems=(*_BODY, 404, 409, 422),
    ),
    Route(
        "POST",
        "/api/v1/revocations",
        "Take in and spread what the swarm's owner has revoked",
        "RevocationsAnswer",
        "RevocationsBody",
        problems=(*_BODY, 422),
    ),
    Route("GET", "/api/v1/stats", "Totals", "StatsAnswer", problems=(422,)),
    *(
        Route(method, f"/v1/{path}", summary, "application/json", problems=problems)
        for method, path, summary, problems in (
            ("GET", "models", "The models that workers serve; these five as OpenAI has them", ()),
            ("GET", "models/{name}", "One of them", (404,)),
            ("POST", "chat/completions", "Ask a chat model; streams if asked to", (*_BODY, 404)),
            ("POST", "completions", "Ask a completion model; streams if asked to", (*_BODY, 404)),
            ("POST", "embeddings", "Ask an embedding model", (*_BODY, 404)),
        )
    ),
    Route("GET", "/metrics", "Metrics for Prometheus", "text/plain"),
    Route("GET", "/healthz", "The process lives", "application/json", open=True),
    Route(
        "GET",
        "/readyz",
        "The scheduler takes work: it is not stopping, and its journal is written",
        "application/json",
        problems=(503,),
        open=True,
    ),
    Route("GET", "/openapi.json", "This description", "application/json"),
)

PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "wait": {"type": "number", "minimum": 0, "maximum": 60},
    "job": {"type": "string"},
    "task": {"type": "string"},
    "kinds": {"type": "string"},
    "state": {
        "type": "string",
        "enum": ["queued", "leased", "running", "succeeded", "failed", "cancelled"],
    },
    "cursor": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
    "stream": {"type": "string", "enum": ["stdout", "stderr"]},
    "prefix": {"type": "string"},
    "after": {"type": "integer", "minimum": 0},
    "follow": {"type": "boolean"},
    "dry_run": {"type": "boolean"},
    "hand_back_after": {"type": "number", "minimum": 0},
}


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))


_PATTERNS: Final = [(route.method, _pattern(route.path)) for route in ROUTES]


def methods_of(path: str) -> tuple[str, ...]:
    """What may be done with this path; nothing if there is no such path."""
    return tuple(method for method, pattern in _PATTERNS if pattern.fullmatch(path))


@functools.cache
def document() -> bytes:
    """The OpenAPI description of all routes."""
    references, schemas = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, references)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Mycel", "version": "1"},
            "paths": paths,
            "security": [{"bearer": []}],
            "components": {
                "schemas": schemas,
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _schemas() -> tuple[dict[str, Any], dict[str, Any]]:
    from mycel.core.views import Explanation

    from .answers import answers
    from .http import problems
    from .routes import (
        blob_routes,
        model_routes,
        network_routes,
        service_routes,
        worker_routes,
    )
    from .submission import bodies

    kinds: list[Any] = [
        bodies.TaskBody,
        bodies.JobBody,
        bodies.BatchBody,
        bodies.RevocationsBody,
        bodies.MissingBody,
        blob_routes.BlobAnswer,
        blob_routes.MissingAnswer,
        answers.TaskAnswer,
        answers.TaskList,
        answers.JobAnswer,
        answers.JobList,
        answers.BatchAnswer,
        answers.PreviewAnswer,
        answers.RevocationsAnswer,
        answers.LogsAnswer,
        answers.ResultAnswer,
        worker_routes.WorkerList,
        model_routes.ModelList,
        worker_routes.WorkerAnswer,
        service_routes.ServiceList,
        network_routes.PeerList,
        network_routes.SwarmAnswer,
        network_routes.PingBody,
        network_routes.PingAnswer,
        worker_routes.StatsAnswer,
        Explanation,
        problems.ProblemDocument,
    ]
    found, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    names = [kind.__name__ for kind in kinds]
    return dict(zip(names, found, strict=True)), components


def _operation(route: Route, references: dict[str, Any]) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": references["ProblemDocument"]}}
    responses: dict[str, Any] = {
        str(status): {"description": "Done", "content": _content(route.answer, references)}
        for status in route.statuses
    }
    always = () if route.open else (401, 403, 503)
    for status in sorted({*route.problems, *always}):
        responses[str(status)] = {"description": PROBLEMS[status], "content": problem}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "schema": PARAMETERS[name]} for name in route.query
    ]
    operation: dict[str, Any] = {"summary": route.summary, "responses": responses}
    if route.path in ("/api/v1/tasks", "/api/v1/jobs") and route.body:
        schema = {"type": "string", "minLength": 1, "maxLength": 255}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        content = _content(route.body, references)
        operation["requestBody"] = {"required": True, "content": content}
    if route.open:
        operation["security"] = []
    return operation


def _content(name: str, references: dict[str, Any]) -> dict[str, Any]:
    if "/" in name:
        return {name: {}}
    return {"application/json": {"schema": references[name]}}
