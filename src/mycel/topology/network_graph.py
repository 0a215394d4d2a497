"""A weighted graph of servers and switches, with what has failed in it.

A server with a single link is *attached*: it is contracted onto the switch at the other end of
that link. Routing tables therefore hold switches only, and never all pairs of servers. A server
with several links (or a leaf that is itself a server) stays in the fabric.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import rustworkx

from .errors import BadTopology, Disconnected

LATENCY_NS_MAX: Final = 10**12
"""A thousand seconds. Sums along a path stay exact in the floats that scipy computes with."""


class Kind(StrEnum):
    SERVER = "server"
    LEAF = "leaf"
    SPINE = "spine"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    kind: Kind
    is_server: bool


@dataclass(frozen=True, slots=True)
class Link:
    first: int
    second: int
    latency_ns: int
    bandwidth_bits_per_s: int

    def other(self, node: int) -> int:
        return self.second if node == self.first else self.first


class Topology:
    """Servers are numbered in the order of their nodes: `servers[i]` is the node of server i."""

    def __init__(self, nodes: Iterable[Node], links: Iterable[Link]) -> None:
        self.nodes: Final = tuple(nodes)
        self.links: Final = tuple(links)
        self.index_by_name: Final = _indexed(self.nodes)
        _check_links(self.nodes, self.links)
        self.links_of: Final = _incidence(len(self.nodes), self.links)
        self.servers: Final = tuple(i for i, node in enumerate(self.nodes) if node.is_server)
        if not self.servers:
            raise BadTopology("the topology has no servers: name at least one")
        self.attachment: Final = self._attachments()
        self.access_links: Final = frozenset(self.attachment.values())
        self.fabric: Final = tuple(i for i in range(len(self.nodes)) if i not in self.attachment)
        self.position: Final = {node: number for number, node in enumerate(self.fabric)}
        """Where a fabric node stands in `fabric`, and so in every table."""
        self.failed_nodes: Final[set[int]] = set()
        self.failed_links: Final[set[int]] = set()
        self._check_connected()

    def _attachments(self) -> dict[int, int]:
        """Attached server node → its only link."""
        found: dict[int, int] = {}
        for node in self.servers:
            if len(self.links_of[node]) == 1:
                link = self.links_of[node][0]
                if self.links[link].other(node) not in found:  # two servers on one cable
                    found[node] = link
        return found

    def _check_connected(self) -> None:
        graph = rustworkx.PyGraph(multigraph=False)
        graph.add_nodes_from(range(len(self.nodes)))
        graph.add_edges_from_no_data([(link.first, link.second) for link in self.links])
        components = rustworkx.connected_components(graph)
        with_servers = [part for part in components if not part.isdisjoint(self.servers)]
        if len(with_servers) > 1:
            small = min(with_servers, key=lambda part: (len(part), min(part)))
            alone = sorted(self.nodes[i].name for i in small if self.nodes[i].is_server)
            raise Disconnected(
                f"the topology is in {len(with_servers)} pieces: {', '.join(alone[:3])}"
                f"{' …' if len(alone) > 3 else ''} cannot reach the other servers; add links"
            )

    def place(self, node: int) -> int:
        """The fabric node that a node's routes start at."""
        link = self.attachment.get(node)
        return node if link is None else self.links[link].other(node)

    def is_up(self, node: int) -> bool:
        """Whether the node, and for an attached server its link, has not failed."""
        return node not in self.failed_nodes and self.attachment.get(node) not in self.failed_links

    def is_link_live(self, link: int) -> bool:
        ends = self.links[link]
        return (
            link not in self.failed_links
            and ends.first not in self.failed_nodes
            and ends.second not in self.failed_nodes
        )

    def live_links_of(self, node: int) -> Iterator[tuple[int, int]]:
        """(link, neighbour) of each link of the node that works now."""
        for link in self.links_of[node]:
            if self.is_link_live(link):
                yield link, self.links[link].other(node)

    def node(self, name: str) -> int:
        try:
            return self.index_by_name[name]
        except KeyError:
            raise BadTopology(f"the topology has no node {name!r}") from None

    def link_between(self, first: int, second: int) -> int:
        for link in self.links_of[first]:
            if self.links[link].other(first) == second:
                return link
        names = self.nodes[first].name, self.nodes[second].name
        raise BadTopology(f"there is no link between {names[0]} and {names[1]}")


def _indexed(nodes: tuple[Node, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, node in enumerate(nodes):
        if node.name in found:
            raise BadTopology(f"two nodes are named {node.name!r}: rename one")
        found[node.name] = number
    return found


def _check_links(nodes: tuple[Node, ...], links: tuple[Link, ...]) -> None:
    seen: set[tuple[int, int]] = set()
    for link in links:
        names = f"{nodes[link.first].name} and {nodes[link.second].name}"
        pair = (min(link.first, link.second), max(link.first, link.second))
        if link.first == link.second:
            raise BadTopology(f"{nodes[link.first].name} is linked to itself: remove that link")
        if pair in seen:
            raise BadTopology(f"there are two links between {names}: give one, with the sum")
        # A weight of zero would make loops of equal-cost next hops.
        if not 1 <= link.latency_ns <= LATENCY_NS_MAX:
            raise BadTopology(
                f"the latency between {names} is {link.latency_ns} ns: it must be at least 1 ns "
                "and at most 1,000 s"
            )
        if link.bandwidth_bits_per_s < 1:
            raise BadTopology(f"the bandwidth between {names} must be positive")
        seen.add(pair)


def _incidence(count: int, links: tuple[Link, ...]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for number, link in enumerate(links):
        found[link.first].append(number)
        found[link.second].append(number)
    return found
