"""Small random clusters and jobs for them."""

from __future__ import annotations

import os

import msgspec
from hypothesis import strategies as st

from mycel.core.federation.graph.cluster_graph import ClusterGraph, Vertex, build_graph
from mycel.core.federation.request.constraints import EVERYWHERE, Constraint
from mycel.core.federation.request.counts import Count, exactly, ranged
from mycel.core.federation.request.request_tree import SLOT, JobRequest, Request

BELOW = {
    "cluster": ("rack", "node", "ssd"),
    "rack": ("node", "ssd"),
    "node": ("socket", "core", "gpu"),
    "socket": ("core", "memory", "gpu"),
}
VERTICES_MAX = 14
EXAMPLES = int(os.environ.get("MYCEL_EXAMPLES", "1"))
"""`make soak` tries many times as many."""


@st.composite
def graphs(draw: st.DrawFn) -> ClusterGraph:
    vertices: dict[str, Vertex] = {}
    children: dict[str, list[str]] = {}

    def grow(type_: str, parent: str | None) -> None:
        if len(vertices) >= VERTICES_MAX:
            return
        identifier = str(len(vertices))
        pool = type_ in ("memory", "ssd")
        vertices[identifier] = Vertex(
            identifier=identifier,
            type=type_,
            name=f"{type_}{identifier}",
            size=draw(st.integers(0, 4)) if pool else 1,
            rank=len(vertices) if type_ == "node" else -1,
            up=draw(st.sampled_from((True, True, True, False))) if parent else True,
            properties=frozenset(draw(st.sampled_from(((), ("ssd",), ("ssd", "big"))))),
        )
        if parent is not None:
            children.setdefault(parent, []).append(identifier)
        for below in BELOW.get(type_, ()):
            most = 4 if below in ("core", "memory", "ssd") else 2
            for _ in range(draw(st.integers(most // 2, most))):
                grow(below, identifier)

    grow("cluster", None)
    return build_graph(vertices, children)


def counts() -> st.SearchStrategy[Count]:
    one = st.sampled_from((1, 1, 1, 2, 3)).map(exactly)
    two = st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(1, 2)).map(
        lambda drawn: ranged(drawn[0], drawn[0] + drawn[1], "+", drawn[2])
    )
    three = st.tuples(st.integers(1, 2), st.integers(2, 6)).map(
        lambda drawn: ranged(drawn[0], drawn[0] * drawn[1], "*", 2)
    )
    return st.one_of(one, one, two, three)


@st.composite
def requests(draw: st.DrawFn, type_: str, in_slot: bool, depth: int) -> Request:
    contents: list[Request] = []
    below = BELOW.get(type_, ())
    if below and depth < 3:
        if not in_slot and draw(st.booleans()):
            contents = draw(alternatives(below, depth + 1))
        else:
            chosen = draw(st.lists(st.sampled_from(below), max_size=3))
            contents = [draw(requests(one, in_slot, depth + 1)) for one in chosen]
    exclusive = draw(st.sampled_from((None, None, None, True)))
    return Request(type_, draw(counts()), tuple(contents), exclusive)


@st.composite
def slots(draw: st.DrawFn, types: tuple[str, ...], depth: int) -> Request:
    deeper = tuple(dict.fromkeys(types + tuple(b for t in types for b in BELOW.get(t, ()))))
    chosen = draw(st.lists(st.sampled_from(deeper), min_size=1, max_size=3))
    contents = tuple(draw(requests(one, True, depth + 1)) for one in chosen)
    return Request(SLOT, draw(counts()), contents, label="s")


@st.composite
def alternatives(draw: st.DrawFn, types: tuple[str, ...], depth: int) -> list[Request]:
    """One slot, or several of one count, of which each may be built or exactly one is meant."""
    found = draw(st.lists(slots(types, depth), min_size=1, max_size=2))
    kind = draw(st.sampled_from((SLOT, SLOT, "xor_slot")))
    count = found[0].count if kind == SLOT else None
    return [msgspec.structs.replace(one, type=kind, count=count or one.count) for one in found]


def constraints() -> st.SearchStrategy[Constraint]:
    one = st.sampled_from(
        (
            EVERYWHERE,
            EVERYWHERE,
            Constraint("properties", ("ssd",)),
            Constraint("properties", ("^big",)),
            Constraint("ranks", ("0-4",), ranks=frozenset(range(5))),
            Constraint("hostlist", ("node2",), hosts=frozenset(("node2", "node3"))),
        )
    )
    nested = st.tuples(one, st.sampled_from(("not", "or", "and"))).map(
        lambda drawn: Constraint(drawn[1], parts=(drawn[0],))
    )
    return st.one_of(one, one, nested)


@st.composite
def jobs(draw: st.DrawFn) -> JobRequest:
    resources: tuple[Request, ...]
    if draw(st.booleans()):
        resources = tuple(draw(alternatives(("node", "core", "ssd"), 0)))
    else:
        types = st.sampled_from(("cluster", "rack", "node", "socket", "core", "memory"))
        chosen = draw(st.lists(types, min_size=1, max_size=3))
        resources = tuple(draw(requests(one, False, 0)) for one in chosen)
    duration = draw(st.integers(1, 5))
    return JobRequest(
        resources=resources, constraint=draw(constraints()), duration_seconds=duration
    )
