"""`mycel bench federation`: how many jobs a second find their cluster among a hundred.

    100 clusters of 1,000 nodes, of different node types and sizes
    1,000 job specs: a third fits every cluster, a third some, a third none
    a decision: tokens aside, all levels of matching on all clusters, then the cheapest that fits

Without pruning there are no summaries, no aggregates and no answers by kind: every vertex is
visited. That takes seconds for each decision, so only some of the specs are decided that way,
evenly drawn from the mix; both ways have to agree on them.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from mycel.console.tables import print_json, print_table
from mycel.core.federation.cluster_selection import SIMPLE
from mycel.core.federation.decision import ClusterTable, decide
from mycel.core.federation.graph.cluster_graph import ClusterGraph, Vertex, build_graph
from mycel.core.federation.graph.vertex_kinds import KindTable
from mycel.core.federation.request.constraints import EVERYWHERE, Constraint, properties
from mycel.core.federation.request.counts import at_least, exactly, ranged
from mycel.core.federation.request.request_tree import SLOT, JobRequest, Request

SEED: Final = 20_261_118
CLUSTERS: Final = 100
NODES: Final = 1_000
SPECS: Final = 1_000
UNPRUNED: Final = 3
NODES_PER_RACK: Final = 40


class NodeType(msgspec.Struct, frozen=True):
    """Of which nodes are made."""

    sockets: int
    cores: int
    """In a socket."""
    memory_gb: int
    """In a chunk; a socket has two."""
    gpus: int
    """In a socket."""
    properties: tuple[str, ...] = ()


NODE_TYPES: Final = (
    NodeType(2, 8, 32, 0),
    NodeType(2, 8, 64, 0, ("ib",)),
    NodeType(2, 10, 64, 0, ("ib", "fat")),
    NodeType(2, 8, 64, 1, ("gpu",)),
    NodeType(2, 8, 64, 2, ("gpu", "ib")),
    NodeType(1, 12, 128, 0),
)


class Spec(msgspec.Struct, frozen=True):
    template: str
    fits: str
    """`everywhere`, `somewhere` or `nowhere`"""
    job: JobRequest


class Report(msgspec.Struct, frozen=True, kw_only=True):
    clusters: int
    nodes: int
    vertices: int
    kinds: int
    specs: int
    mix: dict[str, dict[str, int]]
    fits: dict[str, int]
    """How many specs did fit every cluster, some, none."""
    decisions_per_s: float
    decisions_per_cpu_s: float
    """By the processor's time: what a machine that others use at the same time would do alone."""
    decision_ms_p50: float
    decision_ms_p99: float
    decisions_per_s_unpruned: float
    unpruned: int
    """How many specs were decided without pruning."""
    ratio: float
    agree: bool
    mb: float
    build_s: float
    seed: int


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mycel bench federation", description=__doc__)
    parser.add_argument("--clusters", type=int, default=CLUSTERS)
    parser.add_argument("--nodes", type=int, default=NODES, help="of each cluster")
    parser.add_argument("--specs", type=int, default=SPECS)
    parser.add_argument("--unpruned", type=int, default=UNPRUNED, help="specs without pruning")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    report = measure(options.clusters, options.nodes, options.specs, options.unpruned, options.seed)
    if options.json:
        print_json(report)
    else:
        print_table(("figure", "value"), [(k, str(v)) for k, v in _rows(report)])
    return 0 if report.agree else 1


def measure(clusters: int, nodes: int, count: int, unpruned: int, seed: int) -> Report:
    random = Random(seed)
    specs = make_specs(count, nodes, random)
    before = _megabytes()
    began = time.perf_counter()
    table, kinds = make_clusters(clusters, nodes, random)
    built = time.perf_counter() - began
    gc.collect()
    memory = _megabytes() - before
    gc.freeze()
    taken: list[float] = []
    fits = {"everywhere": 0, "somewhere": 0, "nowhere": 0}
    agree = True
    began, began_cpu = time.perf_counter(), time.process_time()
    found = []
    for spec in specs:
        start = time.perf_counter()
        found.append(_decide(table, spec.job, random, pruning=True))
        taken.append(time.perf_counter() - start)
    seconds, seconds_cpu = time.perf_counter() - began, time.process_time() - began_cpu
    for spec, (number, _) in zip(specs, found, strict=True):
        word = "everywhere" if number == clusters else "somewhere" if number else "nowhere"
        fits[word] += 1
        agree &= word == spec.fits
    slow = 0.0
    sample = [len(specs) * n // max(1, unpruned) for n in range(min(unpruned, len(specs)))]
    for index in sample:
        start = time.perf_counter()
        plain = _decide(table, specs[index].job, random, pruning=False)
        slow += time.perf_counter() - start
        agree &= plain == found[index]
    taken.sort()
    rate = len(specs) / seconds
    slow_rate = len(sample) / slow if slow else 0.0
    return Report(
        clusters=clusters,
        nodes=nodes,
        vertices=sum(len(one.graph) for one in table.clusters.values()),
        kinds=len(kinds),
        specs=len(specs),
        mix=_mix(specs),
        fits=fits,
        decisions_per_s=round(rate, 1),
        decisions_per_cpu_s=round(len(specs) / seconds_cpu, 1),
        decision_ms_p50=round(taken[len(taken) // 2] * 1000, 3),
        decision_ms_p99=round(taken[len(taken) * 99 // 100] * 1000, 3),
        decisions_per_s_unpruned=round(slow_rate, 4),
        unpruned=len(sample),
        ratio=round(rate / slow_rate, 1) if slow_rate else 0.0,
        agree=agree,
        mb=round(memory, 1),
        build_s=round(built, 1),
        seed=seed,
    )


def _decide(
    table: ClusterTable, job: JobRequest, random: Random, *, pruning: bool
) -> tuple[int, str]:
    """How many clusters fit, and which one was chosen."""
    matches = table.match(job, pruning=pruning)
    if not matches.fitting:
        return 0, ""
    decision = decide(table, matches, SIMPLE["lowest-cost"], random.randrange)
    return len(matches.fitting), decision.cluster


# Clusters


def make_clusters(count: int, nodes: int, random: Random) -> tuple[ClusterTable, KindTable]:
    """Each has the first node type and two others, in proportions of its own."""
    table, kinds = ClusterTable(), KindTable()
    for number in range(count):
        others = random.sample(NODE_TYPES[1:], 2)
        shares = sorted(random.randint(nodes // 4, nodes) for _ in range(2))
        types = [
            NODE_TYPES[0] if n < shares[0] else others[0] if n < shares[1] else others[1]
            for n in range(nodes)
        ]
        graph = make_cluster(f"c{number}", types, kinds)
        state = {"cost": float(random.randint(1, 100)), "nodes_free": float(nodes)}
        table.put(f"c{number}", graph, state)
    return table, kinds


def make_cluster(name: str, types: list[NodeType], kinds: KindTable) -> ClusterGraph:
    vertices = {"0": Vertex(identifier="0", type="cluster", name=name)}
    children: dict[str, list[str]] = {}

    def add(parent: str, type_: str, label: str, **more: object) -> str:
        identifier = str(len(vertices))
        vertices[identifier] = Vertex(identifier=identifier, type=type_, name=label, **more)  # type: ignore[arg-type]
        children.setdefault(parent, []).append(identifier)
        return identifier

    rack = ""
    for number, one in enumerate(types):
        if number % NODES_PER_RACK == 0:
            rack = add("0", "rack", f"rack{number // NODES_PER_RACK}")
        having = frozenset(one.properties)
        node = add(rack, "node", f"{name}n{number}", rank=number, properties=having)
        for socket_number in range(one.sockets):
            socket = add(node, "socket", f"socket{socket_number}")
            for core in range(one.cores):
                add(socket, "core", f"core{core}")
            for chunk in range(2):
                add(socket, "memory", f"memory{chunk}", size=one.memory_gb, unit="GB")
            for gpu in range(one.gpus):
                add(socket, "gpu", f"gpu{gpu}")
    return build_graph(vertices, children, table=kinds, keep_identifiers=False)


# Jobs


def make_specs(count: int, nodes: int, random: Random) -> list[Spec]:
    """The three thirds in turn, each of its templates in turn."""
    made = []
    thirds = list(TEMPLATES.items())
    for number in range(count):
        word, templates = thirds[number % len(thirds)]
        name, template = list(templates.items())[number // len(thirds) % len(templates)]
        made.append(Spec(name, word, template(random, nodes)))
    return made


def _job(*resources: Request, constraint: Constraint = EVERYWHERE) -> JobRequest:
    return JobRequest(resources=resources, constraint=constraint, duration_seconds=3600)


def _slot(count: int, *contents: Request) -> Request:
    return Request(SLOT, exactly(count), contents, label="task")


def _of(type_: str, count: int, *contents: Request, exclusive: bool | None = None) -> Request:
    return Request(type_, exactly(count), contents, exclusive)


def _sockets(random: Random, nodes: int) -> JobRequest:
    """Some slots in sockets, anywhere."""
    slots = random.randint(1, nodes // 8)
    return _job(_slot(slots, _of("core", random.randint(1, 8)), _of("memory", 1)))


def _whole_nodes(random: Random, nodes: int) -> JobRequest:
    return _job(_of("node", random.randint(1, nodes // 8), exclusive=True))


def _nodes_in_rack(random: Random, _nodes: int) -> JobRequest:
    slot = _slot(1, _of("socket", 1, _of("core", random.randint(1, 8))))
    return _job(_of("rack", 1, _of("node", random.randint(1, 4), slot)))


def _range(random: Random, nodes: int) -> JobRequest:
    least = random.randint(1, nodes // 10)
    slot = Request(SLOT, at_least(1), (_of("core", random.randint(1, 4)),), label="task")
    return _job(Request("node", ranged(least, least * 4, "*", 2), (slot,)))


def _gpus(random: Random, _nodes: int) -> JobRequest:
    """A third or so of the clusters has two GPUs in a socket."""
    contents = (_of("core", random.randint(1, 8)), _of("gpu", 2))
    return _job(_slot(random.randint(1, 2), *contents))


def _properties(random: Random, _nodes: int) -> JobRequest:
    wanted = properties(*random.choice((("fat",), ("gpu", "ib"), ("ib", "^gpu", "fat"))))
    return _job(_of("node", random.randint(1, 2), exclusive=True), constraint=wanted)


def _big_sockets(random: Random, _nodes: int) -> JobRequest:
    return _job(_slot(random.randint(1, 2), _of("core", random.randint(11, 12))))


def _big_memory(random: Random, _nodes: int) -> JobRequest:
    memory = _of("memory", random.randint(129, 256))
    return _job(_slot(random.randint(1, 2), _of("core", random.randint(1, 12)), memory))


def _too_many(random: Random, nodes: int) -> JobRequest:
    """More than there is: the summary knows."""
    return _job(_of("node", nodes + random.randint(1, nodes), exclusive=True))


def _too_large(random: Random, _nodes: int) -> JobRequest:
    """Enough in all, but not in one socket."""
    return _job(_slot(random.randint(1, 4), _of("core", random.randint(13, 40))))


def _unknown_property(random: Random, _nodes: int) -> JobRequest:
    wanted = properties(f"unknown{random.randint(0, 9)}")
    slot = _slot(1, _of("socket", 1, _of("core", random.randint(1, 8))))
    return _job(_of("node", random.randint(1, 4), slot), constraint=wanted)


def _too_full_racks(random: Random, _nodes: int) -> JobRequest:
    """Enough nodes in all, but not in one rack."""
    number = random.randint(NODES_PER_RACK + 1, 4 * NODES_PER_RACK)
    return _job(_of("rack", 1, _of("node", number, exclusive=True)))


TEMPLATES: Final[dict[str, dict[str, Callable[[Random, int], JobRequest]]]] = {
    "everywhere": {
        "slots of cores and memory": _sockets,
        "whole nodes": _whole_nodes,
        "nodes of one rack": _nodes_in_rack,
        "a range of nodes": _range,
    },
    "somewhere": {
        "two GPUs in a socket": _gpus,
        "properties": _properties,
        "11 or 12 cores in a socket": _big_sockets,
        "129 to 256 GB in a socket": _big_memory,
    },
    "nowhere": {
        "more nodes than there are": _too_many,
        "more cores than a socket has": _too_large,
        "a property that no node has": _unknown_property,
        "more nodes than a rack has": _too_full_racks,
    },
}


def _mix(specs: list[Spec]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for spec in specs:
        third = found.setdefault(spec.fits, {})
        third[spec.template] = third.get(spec.template, 0) + 1
    return found


def _rows(report: Report) -> list[tuple[str, object]]:
    plain = msgspec.structs.asdict(report)
    rows: list[tuple[str, object]] = [(k, v) for k, v in plain.items() if k != "mix"]
    for third, templates in report.mix.items():
        rows += [(f"mix, {third}", f"{count} × {name}") for name, count in templates.items()]
    return rows


def _megabytes() -> float:
    """What this process has in memory now."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no file of ours
            return int(file.read().split()[1]) * resource.getpagesize() / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
