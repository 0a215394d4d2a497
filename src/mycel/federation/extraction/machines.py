"""A list of machines as a graph: one cluster, its nodes, and what each of them has.

cluster
└── node        properties: features, partitions, architecture
    ├── socket ─ core …          (without sockets, cores lie right in the node)
    ├── gpu …
    └── memory …                 in chunks, since a slot takes whole vertices
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from mycel.core.federation.errors import GraphError
from mycel.core.federation.graph.cluster_graph import VERTICES_MAX, Vertex

CHUNK_MB: Final = 1_000
CHUNKS_MAX: Final = 64
CORES_MAX: Final = 100_000
GPUS_MAX: Final = 10_000
MEMORY_MB_MAX: Final = 10**12


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cores: int
    memory_mb: int = 0
    gpus: int = 0
    up: bool = True
    properties: frozenset[str] = frozenset()


class Drawn(msgspec.Struct, frozen=True):
    """Ready for `jgf.write_graph` and `build_graph`."""

    vertices: dict[str, Vertex]
    children: dict[str, list[str]]


def draw(cluster: str, machines: Iterable[Machine]) -> Drawn:
    """Raises GraphError for machines that cannot be."""
    pen = _Pen(cluster)
    for rank, machine in enumerate(machines):
        _check(machine)
        pen.node(rank, machine)
    if len(pen.vertices) == 1:
        raise GraphError(cluster, "has no nodes")
    return Drawn(pen.vertices, pen.children)


def _check(machine: Machine) -> None:
    place = f"node {machine.name!r}"
    if not machine.name:
        raise GraphError("", "a node has no name")
    for what, amount, most in (
        ("cores", machine.cores, CORES_MAX),
        ("GPUs", machine.gpus, GPUS_MAX),
        ("MB of memory", machine.memory_mb, MEMORY_MB_MAX),
    ):
        if not 0 <= amount <= most:
            raise GraphError(place, f"{amount} {what} cannot be")


class _Pen:
    def __init__(self, cluster: str) -> None:
        self.vertices = {"0": Vertex(identifier="0", type="cluster", name=cluster)}
        self.children: dict[str, list[str]] = {}
        self._names: set[str] = set()

    def node(self, rank: int, machine: Machine) -> None:
        if machine.name in self._names:
            raise GraphError(f"node {machine.name!r}", "is there twice")
        self._names.add(machine.name)
        node = self._add(
            "0",
            Vertex(
                identifier="",
                type="node",
                name=machine.name,
                rank=rank,
                up=machine.up,
                properties=machine.properties,
            ),
        )
        for number in range(machine.cores):
            self._add(node, Vertex(identifier="", type="core", name=f"core{number}"))
        for number in range(machine.gpus):
            self._add(node, Vertex(identifier="", type="gpu", name=f"gpu{number}"))
        for number, size in enumerate(chunks(machine.memory_mb)):
            name = f"memory{number}"
            vertex = Vertex(identifier="", type="memory", name=name, size=size, unit="MB")
            self._add(node, vertex)

    def _add(self, parent: str, vertex: Vertex) -> str:
        identifier = str(len(self.vertices))
        if len(self.vertices) >= VERTICES_MAX:
            raise GraphError("", f"the cluster has more than {VERTICES_MAX} vertices")
        self.vertices[identifier] = msgspec.structs.replace(vertex, identifier=identifier)
        self.children.setdefault(parent, []).append(identifier)
        return identifier


def chunks(memory_mb: int) -> list[int]:
    """Equal ones, of 1 GB at least; what is left over is not counted."""
    if memory_mb <= 0:
        return []
    size = max(CHUNK_MB, -(-memory_mb // CHUNKS_MAX))
    return [size] * (memory_mb // size) or [memory_mb]
