"""Graphs are checked on the way in, and what is wrong is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from mycel.core.federation.errors import GraphError
from mycel.core.federation.graph.cluster_graph import Vertex, build_graph
from mycel.core.federation.graph.vertex_kinds import KindTable
from mycel.federation.jgf import read_file, read_graph, read_subsystem, write_graph

from .data import DATA, needs_data
from .strategies import graphs


def node(identifier: Any, type_: Any = "node", **more: Any) -> dict[str, Any]:
    return {"id": identifier, "metadata": {"type": type_, **more}}


def graph(*nodes: Any, edges: Any = ()) -> bytes:
    listed = [
        {"source": one[0], "target": one[1]} if isinstance(one, tuple) else one for one in edges
    ]
    return json.dumps({"graph": {"nodes": nodes, "edges": listed}}).encode()


ROOT = node("0", "cluster")
WRONG = {
    "not JSON": (b"{", "not JSON"),
    "no graph": (b"[]", "no 'graph'"),
    "nodes are a text": (b'{"graph": {"nodes": "x", "edges": []}}', "list or a mapping"),
    "edges are a text": (b'{"graph": {"nodes": [], "edges": "x"}}', "edges"),
    "no vertices": (graph(), "no vertices"),
    "no id": (graph({"metadata": {"type": "node"}}), "nodes[0]"),
    "no metadata": (graph({"id": "7"}), "'7'"),
    "no type": (graph({"id": "7", "metadata": {}}), "'7'"),
    "a type that is no text": (graph(node("7", 3)), "'7'"),
    "a slot in a graph": (graph(ROOT, node("7", "slot"), edges=[("0", "7")]), "'7'"),
    "the same id twice": (graph(ROOT, node("1"), node("1")), "'1'"),
    "a dangling edge": (graph(ROOT, edges=[("0", "9")]), "'9'"),
    "a dangling edge up": (
        graph(ROOT, edges=[{"source": "9", "target": "0", "relation": "in"}]),
        "'9'",
    ),
    "an edge without end": (graph(ROOT, edges=[{"source": "0"}]), "edges[0]"),
    "an edge twice": (graph(ROOT, node("1"), edges=[("0", "1"), ("0", "1")]), "twice"),
    "a vertex in itself": (graph(ROOT, edges=[("0", "0")]), "contain itself"),
    "two parents": (
        graph(ROOT, node("1"), node("3"), edges=[("0", "1"), ("0", "3"), ("1", "3")]),
        "'3'",
    ),
    "a cycle": (graph(node("1"), node("2"), edges=[("1", "2"), ("2", "1")]), "cycle"),
    "a cycle beside the root": (
        graph(ROOT, node("1"), node("2"), edges=[("1", "2"), ("2", "1")]),
        "cycle",
    ),
    "two roots": (graph(node("1"), node("2")), "2 roots"),
    "a negative size": (graph(node("1", size=-1)), "'1'"),
    "an absurd size": (graph(node("1", size=10**30)), "'1'"),
    "half a size": (graph(node("1", size=0.5)), "'1'"),
    "a size in words": (graph(node("1", size="many")), "'1'"),
    "true as a size": (graph(node("1", size=True)), "'1'"),
    "an unknown status": (graph(node("1", status=7)), "'1'"),
    "a rank in words": (graph(node("1", rank="first")), "'1'"),
    "properties that are numbers": (graph(node("1", properties=[1])), "'1'"),
    "a name that is too long": (graph(node("1", name="x" * 5000)), "'1'"),
    "in without contains": (
        graph(ROOT, node("1"), edges=[{"source": "1", "target": "0", "relation": "in"}]),
        "does not contain",
    ),
    "a key twice": (
        b'{"graph": {"nodes": {"0": {"metadata": {"type": "a"}}, "0": {"metadata": {}}}}}',
        "twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_graph_that_is_no_cluster_is_refused_with_its_place(case: str) -> None:
    data, said = WRONG[case]
    with pytest.raises(GraphError) as refused:
        read_graph(data, name="c.json")
    assert said in str(refused.value)


def test_a_tower_of_vertices_is_refused_and_not_a_crash() -> None:
    nodes = [node(str(number)) for number in range(5000)]
    edges = [(str(number), str(number + 1)) for number in range(4999)]
    with pytest.raises(GraphError, match="deep"):
        read_graph(graph(*nodes, edges=edges))


def test_both_dialects_give_the_same_graph() -> None:
    flux = graph(ROOT, node("1", size=2, properties={"ssd": ""}), edges=[("0", "1")])
    listed = json.loads(flux)["graph"]
    rainbow = {
        "graph": {
            "nodes": {one["id"]: {"metadata": one["metadata"]} for one in listed["nodes"]},
            "edges": [
                {"source": "0", "target": "1", "relation": "contains"},
                {"source": "1", "target": "0", "relation": "in"},
            ],
        }
    }
    table = KindTable()
    first = read_graph(flux, table=table)
    second = read_graph(json.dumps(rainbow).encode(), table=table)
    assert first.root_kind is second.root_kind
    assert first.totals() == {"cluster": 1, "node": 2}


def test_other_subsystems_edges_are_not_containment() -> None:
    data = graph(
        ROOT,
        node("1"),
        {"id": "p", "metadata": {"type": "pdu", "paths": {"power": "/p"}}},
        edges=[("0", "1"), {"source": "p", "target": "1", "metadata": {"subsystem": "power"}}],
    )
    assert read_graph(data).totals() == {"cluster": 1, "node": 1}


def test_a_packed_file_that_blows_up_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b"[" * 10_000)[:-8])
    with pytest.raises(GraphError, match="unpacked"):
        read_file(path)


def test_a_subsystem_must_belong_to_the_cluster() -> None:
    cluster = read_graph(graph(ROOT, node("1"), edges=[("0", "1")]))
    with pytest.raises(GraphError, match="no vertex '9'"):
        read_subsystem(graph(node("s"), edges=[("9", "s")]), "io", cluster)
    with pytest.raises(GraphError, match="no edge"):
        read_subsystem(graph(node("s")), "io", cluster)
    with pytest.raises(GraphError, match="too"):
        read_subsystem(graph(node("1")), "io", cluster)


@given(graphs())
def test_numbers_of_vertices_are_a_walk_through_the_tree(cluster: Any) -> None:
    for vertex in range(len(cluster)):
        children = list(cluster.children(vertex))
        assert all(cluster.parent(child) == vertex for child in children)
        assert 1 + sum(len(cluster.subtree(child)) for child in children) == len(
            cluster.subtree(vertex)
        )
        assert cluster.find(cluster.path(vertex)) == vertex
        assert cluster.kind(vertex).vertices == len(cluster.subtree(vertex))


def test_what_is_written_can_be_read() -> None:
    vertices = {
        "0": Vertex(identifier="0", type="cluster", name="c"),
        "1": Vertex(identifier="1", type="node", name="n1", rank=0, up=False),
        "2": Vertex(identifier="2", type="memory", name="memory0", size=5, unit="MB"),
    }  # fmt: skip
    children = {"0": ["1"], "1": ["2"]}
    table = KindTable()
    again = read_graph(write_graph(vertices, children), table=table)
    assert again.root_kind is build_graph(vertices, children, table=table).root_kind
    assert again.path(2) == "/c/n1/memory0"


@needs_data
@pytest.mark.parametrize(
    "name", ["flux-tiny.json", "flux-rabbit.json", "rainbow-cluster-nodes.json"]
)
def test_graphs_of_others_are_read(name: str) -> None:
    totals = read_graph(read_file(DATA / "clusters" / name), name=name).totals()
    assert totals["cluster"] == 1
    assert totals["core"] > totals["node"]
