"""A cluster is no sum of its nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mycel.core.federation.decision import ClusterTable
from mycel.core.federation.graph.calendar import Calendar
from mycel.core.federation.graph.cluster_graph import ClusterGraph, Vertex, build_graph
from mycel.core.federation.reasons import Level, Outcome
from mycel.core.federation.request.request_tree import JobRequest
from mycel.federation.specs.spec_reader import read_spec

Tree = dict[str, Any]


def cluster(*nodes: int, sockets: int = 1, memory: tuple[int, ...] = ()) -> ClusterGraph:
    """Nodes of so many cores, spread over sockets."""
    vertices = {"0": Vertex(identifier="0", type="cluster", name="c")}
    children: dict[str, list[str]] = {}

    def add(parent: str, type_: str, **more: Any) -> str:
        identifier = str(len(vertices))
        name = f"{type_}{len(children.get(parent, ()))}"
        vertices[identifier] = Vertex(identifier=identifier, type=type_, name=name, **more)
        children.setdefault(parent, []).append(identifier)
        return identifier

    for rank, cores in enumerate(nodes):
        node = add("0", "node", rank=rank)
        for socket in range(sockets):
            parent = add(node, "socket")
            for _ in range(cores // sockets):
                add(parent, "core")
            if socket == 0:
                for size in memory:
                    add(parent, "memory", size=size)
    return build_graph(vertices, children)


def ask(*resources: Tree, duration: int = 60, **system: Any) -> JobRequest:
    return read_spec(
        json.dumps(
            {
                "version": 9999,
                "resources": resources,
                "tasks": [{"command": ["a"], "slot": "s", "count": {"per_slot": 1}}],
                "attributes": {"system": {"duration": duration, **system}},
            }
        )
    )


def want(type_: str, count: Any = 1, *contents: Tree, **more: Any) -> Tree:
    tree = {"type": type_, "count": count, **more}
    return {**tree, "with": list(contents)} if contents else tree


def slot(count: Any, *contents: Tree) -> Tree:
    return want("slot", count, *contents, label="s")


def ever(graph: ClusterGraph, *resources: Tree) -> bool:
    return bool(Calendar(graph).satisfy(ask(*resources)))


THREE = cluster(12, 12, 12)


def test_ten_nodes_of_twelve_cores_do_not_match_three() -> None:
    job = ask(want("node", 10, slot(1, want("socket", 1, want("core", 12)))))
    verdict = Calendar(THREE).satisfy(job)
    assert verdict.outcome is Outcome.UNSATISFIABLE
    assert verdict.reason is not None
    assert verdict.reason.level is Level.SUMMARY
    assert ever(THREE, want("node", 3, slot(1, want("socket", 1, want("core", 12)))))


def test_thirteen_cores_in_one_slot_do_not_match_three_times_twelve() -> None:
    """There are 36 of them: a sum would say yes."""
    for job in (
        ask(slot(1, want("core", 13))),
        ask(want("node", 1, slot(1, want("core", 13)))),
        ask(want("socket", 1, want("core", 13))),
    ):
        verdict = Calendar(THREE).satisfy(job)
        assert not verdict
        assert verdict.reason is not None
        assert verdict.reason.level is Level.GRAPH
        assert "at most 12" in verdict.reason.text
    assert ever(THREE, slot(3, want("core", 12)))
    assert ever(THREE, slot(36, want("core", 1)))
    assert not ever(THREE, slot(4, want("core", 9)))


def test_one_node_of_thirteen_does_not_make_three() -> None:
    mixed = cluster(*[12] * 10, 13)
    assert ever(mixed, slot(1, want("core", 13)))
    assert not ever(mixed, slot(3, want("core", 13)))
    assert ever(mixed, slot(11, want("core", 12)))
    assert not ever(mixed, slot(12, want("core", 12)))


def test_in_mycels_format_a_slot_may_span_a_nodes_sockets() -> None:
    """There a node is what counts, whatever it is divided into."""
    nodes = cluster(12, 12, sockets=2)
    own = "nodes: {nodes}\ntask: {{requirements: {{cpu_cores: {cores}}}}}"
    assert Calendar(nodes).satisfy(read_spec(own.format(nodes=2, cores=12)))
    assert not Calendar(nodes).satisfy(read_spec(own.format(nodes=1, cores=13)))
    assert not Calendar(nodes).satisfy(read_spec(own.format(nodes=3, cores=1)))
    assert not ever(nodes, slot(1, want("core", 12)))


def test_prefixes_may_be_left_out_but_no_level_within() -> None:
    assert ever(THREE, want("socket", 1, want("core", 2)))
    assert not ever(THREE, want("node", 1, want("core", 2)))


def test_a_slot_takes_whole_vertices() -> None:
    pools = cluster(4, memory=(64, 64))
    assert ever(pools, slot(2, want("core", 1), want("memory", 1)))
    assert not ever(pools, slot(3, want("core", 1), want("memory", 1)))
    assert ever(pools, slot(1, want("core", 1), want("memory", 65)))
    assert not ever(pools, slot(2, want("core", 1), want("memory", 65)))


@pytest.mark.parametrize(
    "resources",
    [
        (slot(1, want("core", 1)), want("node", 1)),
        (slot(1, want("core", 1)), slot(2, want("core", 1))),
        (slot(1, slot(1, want("core", 1))),),
        (slot(1, want("core", 1, exclusive=False)),),
        (want("non_exclusive_slot", 1, want("core", 1)),),
        tuple(want("core", 1) for _ in range(33)),
    ],
)
def test_what_no_matcher_of_this_kind_can_do_is_said(resources: tuple[Tree, ...]) -> None:
    verdict = Calendar(THREE).satisfy(ask(*resources))
    assert verdict.reason is not None
    assert verdict.reason.level is Level.SPEC


def test_shared_vertices_are_shared_and_exclusive_ones_are_not() -> None:
    calendar = Calendar(cluster(4))
    one_core = ask(want("node", 1, slot(1, want("core", 1))))
    assert calendar.allocate("a", one_core, 0)
    whole = ask(want("node", 1, exclusive=True))
    assert str(calendar.allocate("b", whole, 0)) == "no-match"
    assert calendar.allocate("c", one_core, 0)
    for name in ("a", "c"):
        calendar.cancel(name)
    assert calendar.allocate("b", whole, 0).takes["core:exclusive"] == 4
    assert str(calendar.allocate("d", one_core, 0)) == "no-match"


def test_a_job_that_asks_for_nothing_of_its_own_holds_nothing() -> None:
    calendar = Calendar(cluster(1))
    shared = ask(want("node", 1, want("socket", 1, want("core", 1))))
    for name in "abc":
        assert calendar.allocate(name, shared, 0)


def test_ranges_take_the_most_that_is_there() -> None:
    def nodes(most: int) -> Tree:
        count = {"min": 1, "max": most, "operator": "+", "operand": 2}
        return want("node", count, exclusive=True)

    verdict = Calendar(cluster(1, 1, 1, 1)).allocate("a", ask(nodes(9)), 0)
    assert verdict.takes["node:exclusive"] == 3


def test_what_is_down_can_run_later() -> None:
    calendar = Calendar(cluster(2, 2))
    both = ask(want("node", 2, exclusive=True))
    vertex = calendar.graph.find("/c/node1")
    assert vertex is not None
    calendar.set_status(vertex, False)
    assert str(calendar.allocate("a", both, 0)) == "no-match"
    assert str(calendar.reserve("b", both, 0)) == "no-match"
    assert calendar.satisfy(both)
    calendar.set_status(vertex, True)
    assert calendar.allocate("a", both, 0)


def test_reservations_fill_gaps_and_move_up_when_others_are_cancelled() -> None:
    calendar = Calendar(cluster(1, 1))
    one, two = want("node", 1, exclusive=True), want("node", 2, exclusive=True)
    assert str(calendar.reserve("a", ask(one, duration=100), 0)) == "allocated"
    assert str(calendar.reserve("b", ask(two, duration=50), 0)) == "reserved@100"
    longer = ask(one, duration=101)
    assert str(calendar.allocate("c", longer, 0)) == "no-match", "it would run into b"
    assert str(calendar.reserve("c", ask(one, duration=100), 0)) == "allocated"
    assert str(calendar.reserve("d", ask(one, duration=101), 0)) == "reserved@150"
    calendar.cancel("b")
    assert str(calendar.reserve("e", ask(two, duration=50), 0)) == "reserved@100"


def test_a_job_that_overruns_still_has_its_vertices() -> None:
    calendar = Calendar(cluster(1))
    whole = ask(want("node", 1, exclusive=True), duration=10)
    assert calendar.allocate("a", whole, 0)
    assert str(calendar.allocate("b", whole, 20)) == "no-match"
    calendar.cancel("a")
    assert calendar.allocate("b", whole, 20)


def test_without_a_limit_a_job_holds_for_ever() -> None:
    calendar = Calendar(cluster(1))
    assert calendar.reserve("a", ask(want("node", 1, exclusive=True), duration=0), 0)
    later = ask(want("node", 1, exclusive=True))
    assert str(calendar.reserve("b", later, 0)) == "no-match"


def test_longer_than_any_calendar_is_never() -> None:
    assert not Calendar(cluster(1)).satisfy(ask(want("node", 1), duration=10**12))


@pytest.mark.parametrize(
    ("constraint", "nodes"),
    [
        ({"hostlist": ["node[0-1]"]}, 2),
        ({"ranks": ["1"]}, 1),
        ({"not": [{"ranks": ["0"]}]}, 2),
        ({"and": [{"ranks": ["0-1"]}, {"hostlist": ["node1"]}]}, 1),
    ],
)
def test_constraints_count_nodes(constraint: Any, nodes: int) -> None:
    calendar = Calendar(cluster(1, 1, 1))
    assert calendar.satisfy(ask(want("node", nodes), constraints=constraint))
    assert not calendar.satisfy(ask(want("node", nodes + 1), constraints=constraint))


@pytest.mark.parametrize(("unit", "size"), [("GB", 2), ("MB", 2000), ("GiB", 2), ("", 2000)])
def test_memory_is_asked_for_in_any_unit(unit: str, size: int) -> None:
    vertices = {
        "0": Vertex(identifier="0", type="cluster", name="c"),
        "1": Vertex(identifier="1", type="node", name="n"),
        "2": Vertex(identifier="2", type="core", name="core0"),
        "3": Vertex(identifier="3", type="memory", name="memory0", size=size, unit=unit),
    }
    graph = build_graph(vertices, {"0": ["1"], "1": ["2", "3"]})
    clusters = ClusterTable()
    clusters.put("c", graph)
    for memory, fits in (("2GB", True), ("1500MB", True), ("3GB", False)):
        job = read_spec(f"task: {{requirements: {{min_memory: {memory}}}}}")
        assert bool(Calendar(graph).satisfy(job)) is fits
        assert bool(clusters.match(job).fitting) is fits
        assert bool(clusters.match(job).reasons(clusters.clusters)) is not fits
