"""Input that is made to cost time or memory: refused with its place, before it has cost any.

Where something once took for ever or filled the memory, that the test ends is what it checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mycel.core.federation.decision import ClusterTable
from mycel.core.federation.errors import FederationError, GraphError, SpecError
from mycel.core.federation.graph.calendar import Calendar
from mycel.core.federation.match.searches import Searches
from mycel.core.federation.match.slot_packing import shares
from mycel.core.federation.request.counts import exactly
from mycel.core.federation.request.request_tree import SLOT, JobRequest, Request
from mycel.federation import json_values
from mycel.federation.extraction import kubernetes, node_facts, ray, slurm
from mycel.federation.jgf import read_graph, read_subsystem
from mycel.federation.specs.spec_reader import read_spec

from .test_graphs import graph, node
from .test_siblings import drawn

MEGABYTE = 1 << 20


def flux(resources: str = '[{"type": "core", "count": 1}]', system: str = "{}") -> str:
    task = '{"command": ["a"], "slot": "s", "count": {"per_slot": 1}}'
    attributes = f'{{"system": {system}}}'
    return (
        f'{{"version": 9999, "resources": {resources}, "tasks": [{task}], '
        f'"attributes": {attributes}}}'
    )


def count(text: str) -> str:
    return flux(f'[{{"type": "core", "count": {text}}}]')


def constraint(operator: str, *values: str) -> str:
    return flux(system=json.dumps({"constraints": {operator: values}}))


def nested(depth: int) -> str:
    tree = '{"type": "core", "count": 1}'
    for _ in range(depth):
        tree = f'{{"type": "node", "count": 1, "with": [{tree}]}}'
    return flux(f"[{tree}]")


SPECS = {
    "more hosts than there are": (constraint("hostlist", "n[1-999999999]"), "hostlist[0]"),
    "many lists of hosts": (
        constraint("hostlist", *(f"n{n}-[1-99999]" for n in range(5000))),
        "hostlist[2]",
    ),
    "many constraints with hosts": (
        flux(
            system=json.dumps(
                {"constraints": {"or": [{"hostlist": [f"n{n}-[1-99999]"]} for n in range(5000)]}}
            )
        ),
        "or[2].hostlist",
    ),
    "hosts with long names": (constraint("hostlist", "x" * 100_000 + "[1-99999]"), "hostlist[0]"),
    "more ranks than there are": (constraint("ranks", "0-99999999999999"), "ranks[0]"),
    "many sets of ranks": (
        constraint("ranks", *(f"{n}00000-{n}99999" for n in range(1, 5000))),
        "ranks[2]",
    ),
    "a rank below zero": (constraint("ranks", "-1"), "ranks[0]"),
    "a count of thousands of digits": (count("9" * 5000), "line 1"),
    "a count that is not a number": (count("NaN"), "resources.0.count"),
    "a count that is infinite": (count("1e400"), "line 1"),
    "counts listed without end": (count('"1,2-999999999"'), "resources.0.count"),
    "nested requests": (nested(2000), "line 1"),
    "nested lists": ("[" * MEGABYTE, "line 1"),
    "nested constraints": (
        flux(system='{"constraints": ' + '{"not": [' * 3000 + "{}" + "]}" * 3000 + "}"),
        "line 1",
    ),
    "requests in themselves": (
        "version: 9999\nresources: &r [{type: node, count: 1, with: *r}]\n",
        "line 2",
    ),
    "a key twice": ("version: 1\nversion: 9999\n", "line 2"),
    "half a character": ("a: \ud800", "job.yaml"),
    "a type that turns text round": (
        flux('[{"type": "\\u202ecore", "count": 1}]'),
        "resources.0.type",
    ),
    "too many requests": (
        flux("[" + ",".join(f'{{"type": "t{n}", "count": 1}}' for n in range(1001)) + "]"),
        "resources.1000",
    ),
    "a duration without end": (flux(system='{"duration": "inf"}'), "duration"),
    "nodes of Mycel's own": ("nodes: 1-99999999999\ntask: {}\n", "line 1"),
    "cores without end": ("task: {requirements: {cpu_cores: .inf}}", "cpu_cores"),
    "memory without end": ("task: {requirements: {min_memory: 999999999999TB}}", "min_memory"),
}


@pytest.mark.parametrize("case", SPECS)
def test_a_spec_is_refused_with_its_place(case: str) -> None:
    text, place = SPECS[case]
    with pytest.raises(SpecError) as refused:
        read_spec(text, name="job.yaml")
    assert place in str(refused.value)
    assert len(str(refused.value)) < 2000, "the message does not repeat all of it"


@pytest.mark.parametrize("text", ["a=" + "[" * 50_000, "nodes=" + "9" * 50_000, "a='\ud800'"])
def test_toml_is_refused_too(text: str) -> None:
    with pytest.raises(SpecError, match=r"job\.toml"):
        read_spec(text, name="job.toml")


ROOT = node("0", "cluster")
GRAPHS = {
    "nested JSON": (b'{"graph":' * 100_000, "not JSON"),
    "nested properties": (
        b'{"graph":{"nodes":[{"id":"0","metadata":{"a":' + b"[" * 100_000,
        "not JSON",
    ),
    "what is not UTF-8": (b'{"graph":{"nodes":[{"id":"\xff"}]}}', "byte 26"),
    "half a character": (b'{"graph":{"nodes":[{"id":"\\ud800","metadata":{}}]}}', "printable"),
    "a type with a zero": (graph(node("0", "a\0b")), "'0'"),
    "a name that turns text round": (graph(node("0", name="\u202eedon")), "'0'"),
    "a long id": (graph(node("x" * 5000)), "id"),
    "a thousand types": (
        graph(
            ROOT,
            *(node(str(n), f"t{n}") for n in range(1, 1000)),
            edges=[("0", str(n)) for n in range(1, 1000)],
        ),
        "types",
    ),
    "too many properties": (
        graph(node("0", properties={str(n): "" for n in range(2000)})),
        "properties",
    ),
    "a long property": (graph(node("0", properties=["x" * 5000])), "'0'"),
    "sizes that add up to too much": (
        graph(
            ROOT,
            *(node(str(n), "memory", size=1 << 50) for n in range(1, 9)),
            edges=[("0", str(n)) for n in range(1, 9)],
        ),
        "in all",
    ),
    "a key twice in a vertex": (
        b'{"graph":{"nodes":[{"id":"0","id":"1","metadata":{"type":"a"}}]}}',
        "'id' is there twice",
    ),
    "NaN as a size": (
        b'{"graph":{"nodes":[{"id":"0","metadata":{"type":"a","size":NaN}}]}}',
        "NaN",
    ),
    "a size of thousands of digits": (
        b'{"graph":{"nodes":[{"id":"0","metadata":{"type":"a","size":' + b"9" * 5000 + b"}}]}}",
        "not JSON",
    ),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_a_graph_is_refused_with_its_place(case: str) -> None:
    data, said = GRAPHS[case]
    with pytest.raises(GraphError) as refused:
        read_graph(data, name="c.json")
    assert said in str(refused.value)
    assert len(str(refused.value)) < 2000


def test_more_values_than_memory_holds_are_refused_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_values, "VALUES_MAX", 1000)
    with pytest.raises(GraphError, match="1000 values"):
        read_graph(b'{"graph":{"nodes":[' + b"[]," * 1000)


READERS: dict[str, Callable[[bytes], Any]] = {
    "slurm": slurm.read_nodes,
    "kubernetes": kubernetes.read_nodes,
    "ray": ray.read_nodes,
    "compspec": lambda data: node_facts.read_compspec(data, "compspec"),
    "subsystem": lambda data: read_subsystem(data, "io", drawn((1, 0, ()))),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "data",
    [
        b'{"nodes": [' + b"[" * 100_000,
        b'{"nodes": ["\xff"]}',
        b'{"nodes": [], "nodes": []}',
        b'{"nodes": [NaN]}',
        b'{"nodes": [' + b"9" * 5000 + b"]}",
        b'{"nodes": {}, "items": {}, "extractors": [], "data": {}}',
    ],
)
def test_answers_of_batch_systems_are_read_with_the_same_care(reader: str, data: bytes) -> None:
    with pytest.raises(FederationError):
        READERS[reader](data)


def slots(number: int, memory: int) -> Request:
    return Request(SLOT, exactly(number), (Request("memory", exactly(memory)),), label="s")


@pytest.mark.parametrize("wanted", [400, 800, 1000])
def test_packing_pools_of_many_sizes_ends(wanted: int) -> None:
    made = shares(dict.fromkeys(range(1, 65), 1), wanted, Searches())
    assert 1 <= made <= sum(range(1, 65)) // wanted


def test_a_cluster_whose_every_node_has_pools_of_its_own_is_answered() -> None:
    """All searches of one query share a budget: without it each node would cost its own."""
    nodes = [(1, 0, tuple(range(n + 1, n + 30))) for n in range(150)]
    clusters = ClusterTable()
    clusters.put("c", drawn(*nodes))
    for top in (
        slots(7, 701),
        Request("node", exactly(150), (slots(3, 333),)),
        Request(
            "node", exactly(2), (Request("memory", exactly(90)), Request("memory", exactly(91)))
        ),
    ):
        job = JobRequest(resources=(top,))
        fits = bool(clusters.match(job).fitting)
        assert bool(Calendar(clusters.clusters["c"].graph).allocate("a", job, 0)) is fits
