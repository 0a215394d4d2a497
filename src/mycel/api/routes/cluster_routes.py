"""Clusters: they register by a secret that the owner gave out, and report by a secret of their own.

    POST   /api/v1/clusters            with the registration secret
    GET    /api/v1/clusters[/{name}]   for users
    PUT    /api/v1/cluster/state       these four with the cluster's own secret, and ?name=
    PUT    /api/v1/cluster/graph
    PUT    /api/v1/cluster/subsystem   also DELETE; ?subsystem= says which
    POST   /api/v1/cluster/secret      a new one; the old one ends

Graphs are read in a thread, and a body is read only after its secret was found good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from mycel.api.answers.answers import iso
from mycel.api.backend import Clusters
from mycel.api.http.exchange import Query, Request, answer
from mycel.api.http.problems import Problem, unprocessable
from mycel.core.federation.errors import FederationError
from mycel.core.federation.expressions import Value
from mycel.core.federation.registration import ClusterRecord, NameTaken, NotRegistered

Result = TypeVar("Result")
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
_BEARER = b"Bearer "


class RegisterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    graph: msgspec.Raw
    """JSON Graph Format."""
    state: dict[str, Any] = {}
    group: str = ""
    token_seconds: Seconds = 0.0
    """0 is for ever."""
    silent_after_seconds: Seconds = 0.0
    """0 is never."""


class RegisteredAnswer(msgspec.Struct, frozen=True):
    name: str
    token: str
    """For its users; empty if its group has one already."""
    secret: str
    """For its agent."""


class SecretAnswer(msgspec.Struct, frozen=True):
    secret: str


class ClusterAnswer(msgspec.Struct, frozen=True):
    name: str
    group: str
    summary: dict[str, int]
    graph: str
    """The digest of the blob."""
    graph_bytes: int
    subsystems: dict[str, str]
    """Their digests."""
    state: dict[str, Value]
    registered_at: str
    seen_at: str


class ClusterList(msgspec.Struct, frozen=True):
    clusters: list[ClusterAnswer]


async def register(request: Request) -> None:
    request.query()
    secret = _secret(request)
    problem = await _ask(request, lambda clusters: clusters.problem_with_registration(secret))
    _check(problem)
    body = msgspec.json.decode(await request.body(), type=RegisterBody)
    made = await _ask(
        request,
        lambda clusters: clusters.register(
            body.name,
            bytes(body.graph),
            state=body.state,
            group=body.group,
            token_seconds=body.token_seconds,
            silent_after_seconds=body.silent_after_seconds,
        ),
    )
    await request.answer(RegisteredAnswer(made.record.name, made.token, made.secret), 201)


async def list_clusters(request: Request) -> None:
    request.query()
    records = await _ask(request, lambda clusters: clusters.records())
    await request.answer(ClusterList([_answer(record) for record in records]))


async def read_cluster(request: Request) -> None:
    request.query()
    name = request.name
    await request.answer(_answer(await _ask(request, lambda clusters: clusters.record(name))))


async def set_state(request: Request) -> None:
    name = await _known(request)
    change = msgspec.json.decode(await request.body(), type=dict[str, Any])
    record = await _ask(request, lambda clusters: clusters.set_state(name, change))
    await request.answer(_answer(record))


async def replace_graph(request: Request) -> None:
    name = await _known(request)
    graph = await _json(request)
    record = await _ask(request, lambda clusters: clusters.replace_graph(name, graph))
    await request.answer(_answer(record))


async def add_subsystem(request: Request) -> None:
    name, subsystem = await _known(request), _parameter(request.query(), "subsystem")
    data = await _json(request)
    record = await _ask(request, lambda clusters: clusters.add_subsystem(name, subsystem, data))
    await request.answer(_answer(record))


async def remove_subsystem(request: Request) -> None:
    name, subsystem = await _known(request), _parameter(request.query(), "subsystem")
    record = await _ask(request, lambda clusters: clusters.remove_subsystem(name, subsystem))
    await request.answer(_answer(record))


async def rotate_secret(request: Request) -> None:
    name = await _known(request)
    secret = await _ask(request, lambda clusters: clusters.rotate_secret(name))
    await request.answer(SecretAnswer(secret))


async def delete_cluster(request: Request) -> None:
    name = await _known(request)
    await _ask(request, lambda clusters: clusters.delete(name))
    await answer(request.send, 200, b"{}")


async def _known(request: Request) -> str:
    """The cluster, which has shown its secret."""
    name = _parameter(request.query(), "name")
    secret = _secret(request)
    _check(await _ask(request, lambda clusters: clusters.problem_with_secret(name, secret)))
    return name


async def _ask(request: Request, do: Callable[[Clusters], Result]) -> Result:
    try:
        return await asyncio.to_thread(lambda: do(request.backend.clusters()))
    except NotRegistered as error:
        raise Problem(404, str(error)) from None
    except NameTaken as error:
        raise Problem(409, str(error)) from None
    except FederationError as error:
        raise unprocessable(str(error)) from None


async def _json(request: Request) -> bytes:
    """Files may be packed; a body is as large as the limit on requests says, and not a hundred
    times as large."""
    body = await request.body()
    if body.lstrip()[:1] != b"{":
        raise Problem(400, "the body is not a JSON object")
    return body


def _secret(request: Request) -> str:
    header = request.header(b"authorization")
    if header is None or not header.startswith(_BEARER):
        raise _refused("send 'Authorization: Bearer SECRET'")
    return header.removeprefix(_BEARER).strip().decode("latin-1")


def _check(problem: str) -> None:
    if problem:
        raise _refused(problem)


def _refused(detail: str) -> Problem:
    return Problem(401, detail, headers=[(b"www-authenticate", b'Bearer realm="mycel-cluster"')])


def _parameter(query: Query, name: str) -> str:
    text = query.text(name)
    if text is None:
        raise unprocessable(f"the query parameter {name!r} is missing")
    return text


def _answer(record: ClusterRecord) -> ClusterAnswer:
    return ClusterAnswer(
        name=record.name,
        group=record.group,
        summary=record.summary.totals,
        graph=record.graph.digest,
        graph_bytes=record.graph.size,
        subsystems={name: kept.digest for name, kept in record.subsystems.items()},
        state=record.state,
        registered_at=iso(record.registered_at),
        seen_at=iso(record.seen_at),
    )
