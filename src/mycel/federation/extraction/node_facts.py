"""What nodes have beside amounts: versions of systems, libraries and drivers.

Two sources, one form (a subsystem that is attached to nodes): what `compspec extract` wrote for
a node, and what our own probe prints when the batch system runs it on each node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mycel.core.federation.errors import GraphError
from mycel.core.federation.graph.cluster_graph import ClusterGraph
from mycel.federation.json_values import read_json
from mycel.federation.specs.compatibility import SUBSYSTEM

FACTS_MAX: Final = 2_000
VALUE_MAX: Final = 500

PROBE: Final = r"""
node="${SLURMD_NODENAME:-$(hostname)}"
say() { [ -n "$2" ] && printf '%s\t%s\t%s\n' "$node" "$1" "$2"; }
say kernel.release "$(uname -r)"
say arch.name "$(uname -m)"
say os.name "$(. /etc/os-release 2>/dev/null && echo "$ID")"
say os.version "$(. /etc/os-release 2>/dev/null && echo "$VERSION_ID")"
say cpu.model "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)"
say glibc.version "$(ldd --version 2>/dev/null | sed -n '1s/.* //p')"
say python.version "$(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null)"
say mpi.version "$(mpirun --version 2>/dev/null | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')"
query="--query-gpu=driver_version --format=csv,noheader"
say cuda.driver "$(nvidia-smi $query 2>/dev/null | head -n 1)"
exit 0
"""
"""Prints node, key and value, a tab between. It needs a shell and nothing else."""


def read_probe(output: str) -> dict[str, dict[str, str]]:
    """Facts by node. Lines that are no facts are left out: nodes greet people, too."""
    found: dict[str, dict[str, str]] = {}
    for line in output.splitlines():
        parts = line.split("\t")
        if len(parts) == 3 and all(parts):
            node, key, value = parts
            facts = found.setdefault(node, {})
            if len(facts) < FACTS_MAX:
                facts[key] = value.strip()[:VALUE_MAX]
    return found


def read_compspec(data: bytes, place: str) -> dict[str, str]:
    """Facts of one node: all sections of all extractors, flat. Raises GraphError."""
    whole = read_json(data, place)
    extractors = whole.get("extractors", whole) if isinstance(whole, dict) else None
    if not isinstance(extractors, dict):
        raise GraphError(place, "there are no 'extractors': is it from compspec extract?")
    found: dict[str, str] = {}
    for extractor in extractors.values():
        sections = extractor.get("sections") if isinstance(extractor, dict) else None
        for name, section in (sections or {}).items() if isinstance(sections, dict) else ():
            _flatten(section, str(name), found)
    if not found:
        raise GraphError(place, "there are no facts in it")
    return found


def _flatten(value: Any, key: str, found: dict[str, str]) -> None:
    if len(found) >= FACTS_MAX:
        return
    if isinstance(value, dict):
        for name, below in value.items():
            # compspec repeats the section in its keys: mpi has "mpi.version".
            inner = str(name)
            _flatten(below, inner if inner.startswith(f"{key}.") else f"{key}.{inner}", found)
    elif isinstance(value, (str, int, float)) and str(value):
        found[key] = str(value)[:VALUE_MAX]


def write_subsystem(
    facts: Mapping[str, Mapping[str, str]], graph: ClusterGraph, *, place: str = ""
) -> bytes:
    """JSON Graph Format in rainbow's dialect: one vertex for each set of facts, attached to the
    nodes that have it. The key `*` stands for all nodes. Raises GraphError."""
    by_name = {
        graph.name(vertex): identifier
        for identifier, vertex in graph.vertex_of.items()
        if graph.kind(vertex).type == "node"
    }
    nodes: dict[str, Any] = {}
    edges: list[dict[str, str]] = []
    known: dict[tuple[tuple[str, str], ...], str] = {}
    for name, having in facts.items():
        names = list(by_name) if name == "*" else [name]
        key = tuple(sorted(having.items()))
        identifier = known.setdefault(key, f"{SUBSYSTEM}{len(known)}")
        nodes[identifier] = {
            "label": identifier,
            "metadata": {"type": "facts", "name": identifier, "size": 1, **having},
        }
        for one in names:
            if one not in by_name:
                raise GraphError(place, f"there is no node {one!r} in the graph")
            ends = {"source": by_name[one], "target": identifier}
            edges.append({**ends, "relation": "contains"})
    return msgspec.json.encode({"graph": {"directed": True, "nodes": nodes, "edges": edges}})
