"""Clusters register and report over REST, for sites that allow outbound HTTPS only."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mycel.federation.registry.cluster_registry import ClusterRegistry, open_registry

from .api_calls import Answer, call
from .api_server import Served, served


def graph(nodes: int) -> dict[str, Any]:
    vertices = [{"id": "0", "metadata": {"type": "cluster", "name": "c"}}]
    vertices += [
        {"id": str(n), "metadata": {"type": "node", "name": f"n{n}"}} for n in range(1, nodes + 1)
    ]
    edges = [{"source": "0", "target": str(n)} for n in range(1, nodes + 1)]
    return {"graph": {"nodes": vertices, "edges": edges}}


SOFTWARE = {
    "graph": {
        "nodes": [{"id": "s", "metadata": {"type": "package", "version": "4.1"}}],
        "edges": [{"source": "1", "target": "s"}],
    }
}


@pytest.fixture
def registry(tmp_path: Path) -> ClusterRegistry:
    return open_registry(tmp_path, time.time)


@pytest.fixture
def server(registry: ClusterRegistry) -> Iterator[Served]:
    with served() as server:
        server.backend.registry = registry
        yield server


def by(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def register(server: Served, secret: str, name: str = "alpha", **more: Any) -> Answer:
    body = {"name": name, "graph": graph(2), **more}
    return call(server, "POST", "/api/v1/clusters", body, by(secret))


def test_a_cluster_registers_and_reports_by_its_own_secret(
    server: Served, registry: ClusterRegistry
) -> None:
    answer = register(server, registry.invite(), state={"region": "eu"})
    assert answer.status == 201, answer.body
    made = answer.json
    assert registry.problem_with_token("alpha", made["token"]) == ""
    own = by(made["secret"])
    state = call(server, "PUT", "/api/v1/cluster/state?name=alpha", {"nodes_free": 2}, own)
    assert state.json["state"] == {"region": "eu", "nodes_free": 2}
    larger = call(server, "PUT", "/api/v1/cluster/graph?name=alpha", graph(3), own)
    assert larger.json["summary"]["node"] == 3
    path = "/api/v1/cluster/subsystem?name=alpha&subsystem=software"
    assert list(call(server, "PUT", path, SOFTWARE, own).json["subsystems"]) == ["software"]
    assert call(server, "DELETE", path, headers=own).json["subsystems"] == {}
    new = call(server, "POST", "/api/v1/cluster/secret?name=alpha", headers=own).json["secret"]
    assert call(server, "DELETE", "/api/v1/cluster?name=alpha", headers=own).status == 401
    listed = call(server, "GET", "/api/v1/clusters").json["clusters"]
    assert [one["name"] for one in listed] == ["alpha"]
    shown = call(server, "GET", "/api/v1/clusters/alpha")
    for secret in (made["token"], made["secret"], new):
        assert secret.encode() not in shown.body
    assert call(server, "DELETE", "/api/v1/cluster?name=alpha", headers=by(new)).status == 200
    assert call(server, "GET", "/api/v1/clusters/alpha").status == 404


def test_without_a_good_secret_nothing_is_read_or_changed(
    server: Served, registry: ClusterRegistry
) -> None:
    first = registry.invite()
    second = registry.invite()
    for secret in ("", "x", first, second + "x"):
        assert register(server, secret).status == 401
    assert register(server, second).status == 201
    beta = register(server, second, "beta").json["secret"]
    registry.revoke_invitation()
    assert register(server, second, "gamma").status == 401
    for method, path in (
        ("PUT", "/api/v1/cluster/state?name=alpha"),
        ("PUT", "/api/v1/cluster/graph?name=alpha"),
        ("PUT", "/api/v1/cluster/subsystem?name=alpha&subsystem=io"),
        ("DELETE", "/api/v1/cluster/subsystem?name=alpha&subsystem=io"),
        ("POST", "/api/v1/cluster/secret?name=alpha"),
        ("DELETE", "/api/v1/cluster?name=alpha"),
    ):
        assert call(server, method, path, {}, by(beta)).status == 401, "another's secret"
        assert call(server, method, path, {}).status == 401, "a user's token"
        assert call(server, method, path.partition("?")[0], {}, by(beta)).status == 422
    assert {one.name for one in registry.records()} == {"alpha", "beta"}
    assert call(server, "GET", "/api/v1/clusters", headers=by(beta)).status == 401


def test_what_is_wrong_is_refused_and_nothing_is_half_registered(
    server: Served, registry: ClusterRegistry
) -> None:
    secret = registry.invite()
    cycle = {"graph": {"nodes": graph(2)["graph"]["nodes"], "edges": [{"source": "1"}]}}
    wrongs: list[dict[str, Any]] = [
        {"name": "50%"},
        {"name": "'; DROP TABLE clusters; --"},
        {"graph": cycle},
        {"graph": 7},
        {"state": {"a": [1]}},
        {"state": {"a b": 1}},
        {"token_seconds": -1},
        {"unknown": 1},
        {"group": "../x"},
    ]
    for wrong in wrongs:
        assert register(server, secret, **wrong).status == 422, wrong
    assert call(server, "POST", "/api/v1/clusters", b"{", by(secret)).status == 400
    assert registry.records() == []
    assert register(server, secret).status == 201
    assert register(server, secret).status == 409
    twice = b'{"name": "beta", "graph": {"graph": {"nodes": [], "nodes": [], "edges": []}}}'
    said = call(server, "POST", "/api/v1/clusters", twice, by(secret))
    assert said.status == 422
    assert "twice" in json.loads(said.body)["detail"]


def test_a_packed_body_is_refused(server: Served, registry: ClusterRegistry) -> None:
    own = by(register(server, registry.invite()).json["secret"])
    packed = gzip.compress(json.dumps(graph(1)).encode())
    for path in (
        "/api/v1/cluster/graph?name=alpha",
        "/api/v1/cluster/subsystem?name=alpha&subsystem=io",
    ):
        assert call(server, "PUT", path, packed, own).status == 400
