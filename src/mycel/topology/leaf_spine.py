"""The leaf-spine builder: every leaf has a link to every spine.

           spine-0     spine-1
            │ ╲  ╲     ╱  ╱ │
            │  ╲   ╲ ╱   ╱  │
           leaf-0  leaf-1  leaf-2
           │ │ │   │ │ │   │ │ │
           servers

With no servers per leaf, the leaves are the servers.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import BadTopology
from .network_graph import Kind, Link, Node, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSpine:
    spines: int
    leaves: int
    servers_per_leaf: int = 0
    access_latency_ns: int = 1_000
    fabric_latency_ns: int = 2_000
    access_bits_per_s: int = 100_000_000_000
    fabric_bits_per_s: int = 400_000_000_000
    oversubscription: float | None = None
    """What a leaf's servers can send ÷ what its uplinks can carry. Sets `fabric_bits_per_s`."""


def build(shape: LeafSpine) -> Topology:
    if shape.spines < 1 or shape.leaves < 1 or shape.servers_per_leaf < 0:
        raise BadTopology("a leaf-spine network has at least one spine and one leaf")
    leaves_serve = shape.servers_per_leaf == 0
    nodes = [Node(f"spine-{i}", Kind.SPINE, False) for i in range(shape.spines)]
    nodes += [Node(f"leaf-{i}", Kind.LEAF, leaves_serve) for i in range(shape.leaves)]
    fabric_bits_per_s = _uplink_bits_per_s(shape)
    links = [
        Link(spine, shape.spines + leaf, shape.fabric_latency_ns, fabric_bits_per_s)
        for leaf in range(shape.leaves)
        for spine in range(shape.spines)
    ]
    for leaf in range(shape.leaves):
        for number in range(shape.servers_per_leaf):
            name = f"server-{leaf * shape.servers_per_leaf + number}"
            links.append(
                Link(
                    shape.spines + leaf,
                    len(nodes),
                    shape.access_latency_ns,
                    shape.access_bits_per_s,
                )
            )
            nodes.append(Node(name, Kind.SERVER, True))
    return Topology(nodes, links)


def _uplink_bits_per_s(shape: LeafSpine) -> int:
    if shape.oversubscription is None:
        return shape.fabric_bits_per_s
    if shape.oversubscription <= 0 or shape.servers_per_leaf == 0:
        raise BadTopology("oversubscription is a positive ratio, and needs servers on the leaves")
    offered = shape.servers_per_leaf * shape.access_bits_per_s
    return max(1, round(offered / shape.oversubscription / shape.spines))
