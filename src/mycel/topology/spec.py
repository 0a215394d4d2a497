"""A topology as TOML: the scenario's table `[topology]`, or a file with the same keys.

[topology]                      [topology]
spines = 4                      file = "network.toml"
leaves = 8
servers_per_leaf = 16           network.toml has these keys, or its own nodes and links:

                                [[nodes]]
                                name = "a"
                                kind = "server"

                                [[links]]
                                between = ["a", "b"]
                                latency_us = 5
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from mycel.config.loader import read_toml
from mycel.config.validation_errors import complaint

from .errors import BadTopology
from .leaf_spine import LeafSpine, build
from .network_graph import Kind, Link, Node, Topology

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class NodeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    kind: Literal["server", "leaf", "spine", "switch"] = "switch"
    is_server: bool | None = None
    """Whether work runs there. Servers are; a leaf may be."""


class LinkSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    between: tuple[str, str]
    latency_us: Positive = 1.0
    bandwidth_gbps: Positive = 100.0


class TopologySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    file: str | None = None
    spines: Count | None = None
    leaves: Count | None = None
    servers_per_leaf: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    access_latency_us: Positive = 1.0
    fabric_latency_us: Positive = 2.0
    access_gbps: Positive = 100.0
    fabric_gbps: Positive = 400.0
    oversubscription: Positive | None = None
    nodes: tuple[NodeSpec, ...] = ()
    links: tuple[LinkSpec, ...] = ()


def read_file(path: Path) -> Topology:
    content, where = read_toml(path)
    try:
        spec = msgspec.convert(content, TopologySpec)
    except msgspec.ValidationError as error:
        raise complaint(str(error), content, where, TopologySpec) from None
    return make(spec, path.parent)


def make(spec: TopologySpec, folder: Path) -> Topology:
    """`folder` is what a relative `file` is relative to."""
    if spec.file is not None:
        return read_file(folder / spec.file)
    if spec.nodes:
        return _from_lists(spec)
    if spec.spines is None or spec.leaves is None:
        raise BadTopology("a topology needs spines and leaves, or nodes and links, or a file")
    return build(
        LeafSpine(
            spines=spec.spines,
            leaves=spec.leaves,
            servers_per_leaf=spec.servers_per_leaf,
            access_latency_ns=_ns(spec.access_latency_us),
            fabric_latency_ns=_ns(spec.fabric_latency_us),
            access_bits_per_s=_bits(spec.access_gbps),
            fabric_bits_per_s=_bits(spec.fabric_gbps),
            oversubscription=spec.oversubscription,
        )
    )


def _from_lists(spec: TopologySpec) -> Topology:
    nodes = [
        Node(
            one.name,
            Kind(one.kind),
            one.kind == "server" if one.is_server is None else one.is_server,
        )
        for one in spec.nodes
    ]
    numbers = {node.name: number for number, node in enumerate(nodes)}
    links: list[Link] = []
    for one in spec.links:
        for name in one.between:
            if name not in numbers:
                raise BadTopology(f"a link names {name!r}, and there is no such node")
        first, second = (numbers[name] for name in one.between)
        links.append(Link(first, second, _ns(one.latency_us), _bits(one.bandwidth_gbps)))
    return Topology(nodes, links)


def _ns(microseconds: float) -> int:
    return max(1, round(microseconds * 1000))


def _bits(gbps: float) -> int:
    return max(1, round(gbps * 1e9))


def as_data(topology: Topology) -> dict[str, Any]:
    """For `mycel sim topology show --json`."""
    names = [node.name for node in topology.nodes]
    return {
        "nodes": [
            {"name": node.name, "kind": node.kind.value, "is_server": node.is_server}
            for node in topology.nodes
        ],
        "links": [
            {
                "between": [names[link.first], names[link.second]],
                "latency_ns": link.latency_ns,
                "bandwidth_bits_per_s": link.bandwidth_bits_per_s,
            }
            for link in topology.links
        ],
    }
