"""Every graph backend gives the same answers: the built-in one, and the one on NetworkX."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycel.core.federation.errors import GraphError
from mycel.core.federation.graph.calendar import UnknownJob
from mycel.core.federation.graph.cluster_graph import ClusterGraph, Vertex
from mycel.core.federation.request.request_tree import JobRequest
from mycel.federation.backends import (
    BUILT_IN,
    GraphBackend,
    UnknownBackend,
    UnknownCluster,
    make_backend,
)
from mycel.federation.jgf import write_graph
from mycel.federation.specs.spec_reader import read_spec

from .brute_force import BruteForce
from .strategies import EXAMPLES, graphs, jobs
from .test_graphs import graph, node


@pytest.fixture(params=BUILT_IN)
def backend(request: pytest.FixtureRequest) -> GraphBackend:
    return make_backend(request.param)


CLUSTER = graph(
    node("0", "cluster", name="c"),
    node("1", name="n1"),
    node("2", name="n2"),
    *(node(f"{parent}{n}", "core", name=f"core{n}") for parent in "12" for n in range(2)),
    edges=[("0", "1"), ("0", "2"), *((p, f"{p}{n}") for p in "12" for n in range(2))],
)
SOFTWARE = graph(
    node("s", "package", version="4.1.2"),
    edges=[{"source": "2", "target": "s", "relation": "contains"}],
)


def spec(nodes: int, cores: int = 1, limit: int = 60, exclusive: bool = False) -> JobRequest:
    shared = "true" if exclusive else "false"
    return read_spec(
        f"nodes: {nodes}\nexclusive: {shared}\ntime_limit: {limit}\n"
        f"task: {{requirements: {{cpu_cores: {cores}}}}}"
    )


def test_allocate_reserve_cancel(backend: GraphBackend) -> None:
    assert backend.put("c", CLUSTER).totals == {"cluster": 1, "core": 4, "node": 2}
    assert str(backend.allocate("c", "a", spec(1, 2), 0)) == "allocated"
    assert str(backend.allocate("c", "b", spec(2), 0)) == "no-match"
    assert str(backend.reserve("c", "b", spec(2), 0)) == "reserved@60"
    assert str(backend.reserve("c", "c", spec(1, limit=60), 0)) == "allocated"
    with pytest.raises(UnknownJob):
        backend.allocate("c", "a", spec(1), 0)
    backend.cancel("c", "a")
    backend.cancel("c", "b")
    assert str(backend.allocate("c", "d", spec(1, 2), 0)) == "allocated"
    with pytest.raises(UnknownJob):
        backend.cancel("c", "a")


def test_satisfy_tells_never_from_not_now(backend: GraphBackend) -> None:
    backend.put("c", CLUSTER)
    assert backend.allocate("c", "a", spec(2, exclusive=True), 0)
    assert backend.satisfy("c", spec(2))
    never = backend.satisfy("c", spec(1, 3))
    assert str(never) == "unsatisfiable"
    assert never.reason is not None


def test_subsystems_come_and_go_and_jobs_stay(backend: GraphBackend) -> None:
    backend.put("c", CLUSTER)
    wants = read_spec(
        "version: 1\nresources: {a: {type: node, with: [{type: slot, with: [{type: core}]}], "
        "requires: [{name: software, field: version, min: '4.1', max: '5'}]}}\n"
        "task: {command: [a]}"
    )
    assert not backend.satisfy("c", wants)
    backend.attach("c", "software", SOFTWARE)
    assert str(backend.allocate("c", "1", wants, 0)) == "allocated"
    assert str(backend.allocate("c", "2", wants, 0)) == "allocated"
    assert str(backend.allocate("c", "3", wants, 0)) == "no-match", "one node has the software"
    with pytest.raises(GraphError):
        backend.attach("c", "software", graph(node("s")))
    assert backend.satisfy("c", wants), "what was wrong has changed nothing"
    backend.detach("c", "software")
    assert not backend.satisfy("c", wants)
    backend.attach("c", "software", SOFTWARE)
    assert str(backend.allocate("c", "3", wants, 0)) == "no-match", "its jobs are still there"


def test_status(backend: GraphBackend) -> None:
    backend.put("c", CLUSTER)
    backend.set_status("c", "/c/n1", False)
    assert not backend.allocate("c", "a", spec(2), 0)
    assert backend.satisfy("c", spec(2))
    backend.set_status("c", "/c/n1", True)
    assert backend.allocate("c", "a", spec(2), 0)
    with pytest.raises(GraphError, match="/c/n9"):
        backend.set_status("c", "/c/n9", True)


@pytest.mark.parametrize("name", BUILT_IN)
def test_where_nodes_are_never_shared_one_core_takes_a_node(name: str) -> None:
    backend = make_backend(name, frozenset(("node",)))
    backend.put("c", CLUSTER)
    assert backend.allocate("c", "a", spec(1), 0)
    assert backend.allocate("c", "b", spec(1), 0)
    assert str(backend.allocate("c", "c", spec(1), 0)) == "no-match"
    assert str(backend.reserve("c", "c", spec(2), 0)) == "reserved@60"


def test_nothing_is_half_put(backend: GraphBackend) -> None:
    backend.put("c", CLUSTER)
    with pytest.raises(GraphError):
        backend.put("c", b"{}")
    assert backend.satisfy("c", spec(2))
    backend.remove("c")
    backend.remove("c")
    with pytest.raises(UnknownCluster):
        backend.satisfy("c", spec(2))


def test_a_backend_that_is_not_there() -> None:
    with pytest.raises(UnknownBackend, match="memory"):
        make_backend("tape")


def test_plug_ins_bring_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_backend.py").write_text(
        "from mycel.federation.backends import MemoryBackend\n"
        "class Theirs(MemoryBackend):\n    pass\n",
        encoding="utf-8",
    )
    information = tmp_path / "theirs-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: theirs\nVersion: 1\n", encoding="utf-8")
    (information / "entry_points.txt").write_text(
        "[mycel.graph_backends]\ntheirs = their_backend:Theirs\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(make_backend("theirs")).__name__ == "Theirs"


def written(cluster: ClusterGraph) -> bytes:
    vertices: dict[str, Vertex] = {}
    children: dict[str, list[str]] = {}
    for vertex in range(len(cluster)):
        kind = cluster.kind(vertex)
        vertices[str(vertex)] = Vertex(
            identifier=str(vertex),
            type=kind.type,
            name=cluster.name(vertex),
            size=kind.size,
            rank=cluster.rank(vertex),
            up=kind.up,
            properties=kind.properties,
        )
        children[str(vertex)] = [str(child) for child in cluster.children(vertex)]
    return write_graph(vertices, children)


@settings(max_examples=30 * EXAMPLES)
@given(graphs(), st.lists(jobs(), min_size=1, max_size=5), st.sampled_from(("", "node", "rack")))
def test_backends_agree_with_each_other_and_with_brute_force(
    cluster: ClusterGraph, wanted: list[JobRequest], whole: str
) -> None:
    backends = [make_backend(name, frozenset((whole,))) for name in BUILT_IN]
    for backend in backends:
        backend.put("c", written(cluster))
    for number, job in enumerate(wanted):
        assert {bool(one.satisfy("c", job)) for one in backends} == {
            BruteForce(cluster, job).fits()
        }
        verdicts = [one.reserve("c", str(number), job, 0) for one in backends]
        assert len({str(verdict) for verdict in verdicts}) == 1
        assert len({verdict.vertices for verdict in verdicts}) == 1
