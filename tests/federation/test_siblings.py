"""Requests of one type side by side, and slots side by side."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from mycel.core.federation.decision import ClusterTable
from mycel.core.federation.graph.calendar import Calendar
from mycel.core.federation.graph.cluster_graph import ClusterGraph, Vertex, build_graph
from mycel.core.federation.match.division import Demand, amounts, can_divide, divide
from mycel.core.federation.match.matcher import Query
from mycel.core.federation.match.request_levels import compile_variants
from mycel.core.federation.match.searches import Searches
from mycel.core.federation.reasons import Level
from mycel.core.federation.request.counts import Count, exactly, ranged
from mycel.core.federation.request.request_tree import SLOT, JobRequest, Request
from mycel.federation.specs.spec_reader import read_spec

from .brute_force import BruteForce
from .strategies import EXAMPLES
from .test_slots import ask, cluster, slot, want

Node = tuple[int, int, tuple[int, ...]]
"""Cores, GPUs and pools of memory."""


def drawn(*nodes: Node) -> ClusterGraph:
    vertices = {"0": Vertex(identifier="0", type="cluster", name="c")}
    children: dict[str, list[str]] = {}

    def add(parent: str, type_: str, size: int = 1) -> str:
        identifier = str(len(vertices))
        name = f"{type_}{identifier}"
        vertices[identifier] = Vertex(identifier=identifier, type=type_, name=name, size=size)
        children.setdefault(parent, []).append(identifier)
        return identifier

    for cores, gpus, pools in nodes:
        node = add("0", "node")
        for _ in range(cores):
            add(node, "core")
        for _ in range(gpus):
            add(node, "gpu")
        for size in pools:
            add(node, "memory", size)
    return build_graph(vertices, children)


def ever(graph: ClusterGraph, *resources: Any) -> bool:
    return bool(Calendar(graph).satisfy(ask(*resources)))


ONE_WIDE = drawn((4, 0, ()), (1, 0, ()), (1, 0, ()))


def test_each_request_gets_vertices_of_its_own() -> None:
    wide = want("node", 1, slot(1, want("core", 4)))
    narrow = want("node", 1, slot(1, want("core", 1)))
    assert ever(ONE_WIDE, wide, narrow)
    assert ever(ONE_WIDE, narrow, wide), "the narrow one leaves the wide node to the other"
    assert not ever(ONE_WIDE, wide, wide)
    assert ever(ONE_WIDE, wide, want("node", 2, slot(1, want("core", 1))))
    assert not ever(ONE_WIDE, wide, want("node", 3, slot(1, want("core", 1))))


def test_below_one_vertex_and_inside_a_slot_too() -> None:
    parts = drawn((4, 2, (8, 2)))
    assert ever(parts, want("node", 1, want("memory", 8), want("memory", 2)))
    assert ever(parts, want("node", 1, want("memory", 2), want("memory", 8)))
    assert not ever(parts, want("node", 1, want("memory", 3), want("memory", 3)))
    assert ever(parts, slot(1, want("core", 1), want("core", 3)))
    assert ever(parts, slot(2, want("core", 1), want("core", 1)))
    assert not ever(parts, slot(2, want("core", 1), want("core", 2)))


def test_the_reason_names_what_siblings_take_from_each_other() -> None:
    wide = want("node", 1, slot(1, want("core", 4)))
    verdict = Calendar(drawn((4, 0, ()), (3, 0, ()), (3, 0, ()))).satisfy(ask(wide, wide))
    assert verdict.reason is not None
    assert verdict.reason.level is Level.GRAPH
    assert "beside others" in verdict.reason.text


def test_what_siblings_hold_nobody_else_gets() -> None:
    calendar = Calendar(ONE_WIDE)
    pair = ask(want("node", 1, exclusive=True), want("node", 1, slot(1, want("core", 4))))
    verdict = calendar.allocate("a", pair, 0)
    assert verdict.takes["core:exclusive"] == 5, "the whole of a narrow node and four cores"
    assert str(calendar.allocate("b", pair, 0)) == "no-match"
    assert calendar.allocate("c", ask(want("node", 1, exclusive=True)), 0)


def test_slots_side_by_side_are_alternatives_that_mix() -> None:
    node = drawn((18, 1, ()))
    either = (slot(2, want("core", 12)), slot(2, want("core", 5), want("gpu", 1)))
    assert ever(node, *either), "one of each"
    assert not ever(drawn((18, 0, ())), *either)
    assert not ever(drawn((16, 1, ())), *either)
    assert ever(drawn((4, 0, ())), slot(2, want("core", 3)), slot(2, want("core", 2)))
    two = (want("or_slot", 2, want("core", 12), label="a"),)
    assert ever(drawn((24, 0, ())), *two)


def test_of_exclusive_alternatives_only_one_is_meant() -> None:
    node = drawn((18, 1, ()))

    def either(number: int) -> tuple[Any, ...]:
        return (
            want("xor_slot", number, want("core", 12), label="a"),
            want("xor_slot", number, want("core", 5), want("gpu", 1), label="b"),
        )

    assert ever(node, *either(1))
    assert not ever(node, *either(2)), "they do not mix"
    calendar = Calendar(node)
    assert calendar.allocate("1", ask(*either(1)), 0).takes["core:exclusive"] == 12
    assert calendar.allocate("2", ask(*either(1)), 0).takes["core:exclusive"] == 5
    assert str(calendar.reserve("3", ask(*either(1), duration=5), 0)) == "reserved@60"


def test_too_many_choices_are_refused() -> None:
    level = [want("xor_slot", 1, want("core", 1), label=str(n)) for n in range(9)]
    nodes = [want("rack", 1, *level), want("node", 1, *level)]
    verdict = Calendar(ONE_WIDE).satisfy(ask(*nodes))
    assert verdict.reason is not None
    assert verdict.reason.level is Level.SPEC


def test_in_rainbows_format_named_resources_are_all_meant() -> None:
    text = """
version: 1
resources:
  wide: {type: node, count: 1, with: [{type: slot, with: [{type: core, count: 4}]}]}
  narrow: {type: node, count: 2, with: [{type: slot, with: [{type: core, count: 1}]}]}
task: {command: [a], resources: wide}
"""
    clusters = ClusterTable()
    clusters.put("fits", ONE_WIDE)
    clusters.put("short", drawn((4, 0, ()), (1, 0, ())))
    matches = clusters.match(read_spec(text))
    assert [one.name for one in matches.fitting] == ["fits"]
    assert matches.reasons(clusters.clusters)["short"].level is Level.SUMMARY


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_range_leaves_its_siblings_their_least(first: int) -> None:
    count = {"min": first, "max": 9, "operator": "+", "operand": 1}
    verdict = Calendar(cluster(1, 1, 1, 1)).allocate(
        "a", ask(want("node", count, exclusive=True), want("node", 1)), 0
    )
    assert verdict.takes["node:exclusive"] == 3


COUNTS = st.one_of(
    st.integers(1, 3).map(exactly), st.integers(1, 2).map(lambda low: ranged(low, low + 2))
)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[ClusterGraph, JobRequest]:
    """Nodes that differ, and requests that want the same ones."""
    pools = st.lists(st.integers(1, 4), max_size=2).map(tuple)
    node = st.tuples(st.integers(0, 3), st.integers(0, 1), pools)
    graph = drawn(*draw(st.lists(node, min_size=1, max_size=3)))

    def part() -> Request:
        type_ = draw(st.sampled_from(("core", "core", "gpu", "memory")))
        return Request(type_, draw(COUNTS))

    def slots(inside: list[tuple[Request, ...]]) -> tuple[Request, ...]:
        count = draw(COUNTS)
        kind = draw(st.sampled_from((SLOT, SLOT, "xor_slot")))
        return tuple(Request(kind, count, one) for one in inside)

    def parts() -> tuple[Request, ...]:
        return tuple(part() for _ in range(draw(st.integers(1, 3))))

    shape = draw(st.sampled_from(("nodes", "slots", "node slots", "parts")))
    resources: tuple[Request, ...]
    if shape == "nodes":
        number = draw(st.integers(2, 3))
        resources = tuple(Request("node", draw(COUNTS), parts()) for _ in range(number))
    elif shape == "slots":
        resources = slots([parts() for _ in range(draw(st.integers(1, 3)))])
    elif shape == "node slots":
        inside = slots([parts() for _ in range(draw(st.integers(1, 2)))])
        resources = tuple(Request("node", exactly(1), one) for one in ((inside, parts())))
    else:
        resources = parts()
    return graph, JobRequest(resources=resources, duration_seconds=1)


@settings(max_examples=120 * EXAMPLES)
@given(shapes())
def test_siblings_are_matched_as_brute_force_does(shape: tuple[ClusterGraph, JobRequest]) -> None:
    graph, job = shape
    expected = BruteForce(graph, job).fits()
    event(f"fits: {expected}")
    assert any(Query(one).ever(graph) for one in compile_variants(job)) is expected
    calendar = Calendar(graph)
    assert bool(calendar.satisfy(job)) is expected
    held: frozenset[int] = frozenset()
    for name in "abc":
        fits = BruteForce(graph, job, held=held, check_status=True).fits()
        verdict = calendar.allocate(name, job, 0)
        assert bool(verdict) is fits, verdict.reason
        assert not held.intersection(verdict.vertices)
        held = held.union(verdict.vertices)


ABLE = st.frozensets(st.integers(0, 2), min_size=1)


@settings(max_examples=200 * EXAMPLES)
@given(
    st.dictionaries(ABLE, st.dictionaries(st.integers(1, 4), st.integers(1, 2), max_size=2)),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 2)), max_size=3),
)
def test_what_is_divided_is_there_and_enough(
    supply: dict[frozenset[int], dict[int, int]], wanted: list[tuple[int, int, int]]
) -> None:
    demands = [Demand(*one) for one in wanted]
    shares = divide(supply, demands, Searches())
    assert (shares is not None) is can_divide(supply, demands, Searches())
    if shares is None:
        return
    left = {able: dict(sizes) for able, sizes in supply.items()}
    for demand, mine in zip(demands, shares, strict=True):
        assert len(mine) == demand.times
        for share in mine:
            assert sum(piece.size for piece in share) >= demand.amount
            for piece in share:
                assert demand.request in piece.able
                left[piece.able][piece.size] -= 1
    assert all(n >= 0 for sizes in left.values() for n in sizes.values())


def test_dividing_very_many_vertices_takes_no_longer() -> None:
    either, first = frozenset((0, 1)), frozenset((0,))
    supply = {either: {1: 10**9}, first: {1: 10**9}}
    assert can_divide(supply, [Demand(0, 10**9), Demand(1, 10**9)], Searches())
    assert not can_divide(supply, [Demand(0, 1), Demand(1, 10**9 + 1)], Searches())
    least = Count(1, 10**12)
    wanted = [(0, least), (1, exactly(10**9))]
    assert amounts(supply, wanted, Searches()) == [10**9, 10**9]
