"""The matcher against brute force, on small random clusters."""

from __future__ import annotations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from mycel.core.federation.graph.calendar import Calendar
from mycel.core.federation.graph.cluster_graph import ClusterGraph
from mycel.core.federation.match.matcher import Query
from mycel.core.federation.match.request_levels import compile_variants
from mycel.core.federation.match.searches import Searches
from mycel.core.federation.match.slot_packing import bundles, shares
from mycel.core.federation.mismatch import explain
from mycel.core.federation.request.request_tree import JobRequest

from .brute_force import BruteForce, most_bundles
from .strategies import EXAMPLES, graphs, jobs


@settings(max_examples=60 * EXAMPLES)
@given(graphs(), jobs())
def test_ever_is_what_brute_force_finds(graph: ClusterGraph, job: JobRequest) -> None:
    expected = BruteForce(graph, job).fits()
    event(f"fits: {expected}")
    compiled = compile_variants(job)
    assert any(Query(one).ever(graph) for one in compiled) is expected
    assert any(Query(one, pruning=False).ever(graph) for one in compiled) is expected
    assert (explain(compiled, graph) is None) is expected


@settings(max_examples=60 * EXAMPLES)
@given(graphs(), st.lists(jobs(), min_size=1, max_size=5))
def test_now_is_what_brute_force_finds_among_what_is_held(
    graph: ClusterGraph, wanted: list[JobRequest]
) -> None:
    calendar = Calendar(graph)
    held: set[int] = set()
    for number, job in enumerate(wanted):
        check = BruteForce(graph, job, held=frozenset(held), check_status=True)
        verdict = calendar.allocate(str(number), job, 0)
        event(f"allocated: {bool(verdict)}")
        assert bool(verdict) is check.fits(), verdict.reason
        assert not held & set(verdict.vertices)
        held |= set(verdict.vertices)


@settings(max_examples=30 * EXAMPLES)
@given(graphs(), st.lists(jobs(), min_size=1, max_size=6), st.data())
def test_cancelling_everything_leaves_an_idle_cluster(
    graph: ClusterGraph, wanted: list[JobRequest], data: st.DataObject
) -> None:
    calendar = Calendar(graph)
    for number, job in enumerate(wanted):
        calendar.reserve(str(number), job, 0)
    for name in data.draw(st.permutations(sorted(calendar.holds))):
        calendar.cancel(name)
    occupancy = calendar.during(0, 1, 0)
    assert (occupancy.uses, occupancy.exclusive) == ({}, {})
    assert (occupancy.taken, occupancy.differing) == ({}, {})


@settings(max_examples=30 * EXAMPLES)
@given(graphs(), st.lists(jobs(), min_size=1, max_size=6))
def test_a_reservation_is_the_first_time_at_which_it_fits(
    graph: ClusterGraph, wanted: list[JobRequest]
) -> None:
    calendar = Calendar(graph)
    spans: list[tuple[int, int, tuple[int, ...]]] = []
    for number, job in enumerate(wanted):
        verdict = calendar.reserve(str(number), job, 0)
        last = max((end for _, end, _ in spans), default=0)
        first = next(
            (
                start
                for start in range(last + 1)
                if BruteForce(
                    graph,
                    job,
                    held=frozenset(
                        vertex
                        for begin, end, vertices in spans
                        if begin < start + job.duration_seconds and start < end
                        for vertex in vertices
                    ),
                    check_status=True,
                ).fits()
            ),
            None,
        )
        assert (verdict.at_seconds if verdict else None) == first
        if verdict:
            end = verdict.at_seconds + job.duration_seconds
            spans.append((verdict.at_seconds, end, verdict.vertices))


@given(st.lists(st.integers(1, 9), max_size=7), st.integers(1, 14))
def test_slots_are_packed_as_well_as_possible(sizes: list[int], wanted: int) -> None:
    counted: dict[int, int] = {}
    for size in sizes:
        counted[size] = counted.get(size, 0) + 1
    best = most_bundles(tuple(sizes), wanted)
    assert shares(counted, wanted, Searches()) == best
    made = bundles(sizes, wanted, Searches())
    assert len(made) == best
    assert all(sum(sizes[one] for one in bundle) >= wanted for bundle in made)
    used = [one for bundle in made for one in bundle]
    assert len(used) == len(set(used))
