"""`/openapi.json`: the route table, as others read it."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .answers.answers import PreviewAnswer
from .http.problems import ProblemDocument

if TYPE_CHECKING:
    from .router import Route

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

PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "wait": {"type": "number", "minimum": 0, "maximum": 60},
    "job": {"type": "string"},
    "task": {"type": "string"},
    "kinds": {"type": "string"},
    "state": {
        "type": "string",
        "enum": ["queued", "leased", "running", "succeeded", "failed", "cancelled"],
    },
    "stage": {"type": "string"},
    "name": {"type": "string", "maxLength": 256},
    "user": {"type": "string"},
    "since": {"type": "string", "format": "date-time"},
    "until": {"type": "string", "format": "date-time"},
    "cursor": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
    "stream": {"type": "string", "enum": ["stdout", "stderr"]},
    "prefix": {"type": "string"},
    "ending": {"type": "string"},
    "after": {"type": "integer", "minimum": 0},
    "follow": {"type": "boolean"},
    "only": {"type": "string", "enum": ["failed"]},
    "dry_run": {"type": "boolean"},
    "subsystem": {"type": "string", "maxLength": 63},
    "hand_back_after": {"type": "number", "minimum": 0},
}


@functools.cache
def document(routes: tuple[Route, ...]) -> bytes:
    """The OpenAPI description of all routes."""
    references, schemas = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = route.path.replace(":path}", "}")
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, references)
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


def _schemas(routes: tuple[Route, ...]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """References to what the routes take and answer, and the schemas that they refer to."""
    kinds: dict[Any, None] = dict.fromkeys((PreviewAnswer, ProblemDocument))
    for route in routes:
        kinds.update({one: None for one in (route.body, route.answer) if not isinstance(one, str)})
    found, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    return dict(zip(kinds, found, strict=True)), components


def _operation(route: Route, references: dict[Any, Any]) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": references[ProblemDocument]}}
    responses: dict[str, Any] = {
        str(status): {"description": "Done", "content": _content(route.answer, references)}
        for status in route.statuses
    }
    always = (401, 403, 503) if route.right else ()
    for status in sorted({*route.problems, *always}):
        responses[str(status)] = {"description": PROBLEMS[status], "content": problem}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)[:}]", route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "schema": PARAMETERS[name]} for name in route.query
    ]
    operation: dict[str, Any] = {"summary": route.summary, "responses": responses}
    if route.takes_key:
        schema = {"type": "string", "minLength": 1, "maxLength": 255}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        content = _content(route.body, references)
        operation["requestBody"] = {"required": True, "content": content}
    if not route.right:
        operation["security"] = []
    return operation


def _content(kind: type | str, references: dict[Any, Any]) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {}}
    return {"application/json": {"schema": references[kind]}}
