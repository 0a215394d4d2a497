"""Shortest paths and ECMP over the fabric, kept while links and nodes fail and return.

A table holds the distance of every fabric node to one destination. It is computed when it is
first asked for. Next hops follow from it: a live link on which the distance falls by exactly the
link's latency. So the loss of one of several equal next hops changes no table, and after a
failure only those tables are computed again in which some node has lost its last next hop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from .errors import Unreachable
from .network_graph import Topology
from .splitmix import mix_pair

Hop = tuple[int, int]
"""A link, and the node at its far end."""


class Routes:
    def __init__(self, topology: Topology) -> None:
        self.topology: Final = topology
        self.tables_computed = 0
        """How many tables were computed so far: a failure must not cost them all."""
        self._tables: dict[int, NDArray[numpy.float64]] = {}
        self._matrix: csr_array | None = None

    def distance_ns(self, source: int, destination: int) -> int:
        """Latency of the shortest path. Raises Unreachable."""
        if source == destination:
            return 0
        topology = self.topology
        self._check_up(source, destination)
        total = 0
        for end in (source, destination):
            if end in topology.attachment:
                total += topology.links[topology.attachment[end]].latency_ns
        table = self.table(topology.place(destination))
        between = table[topology.position[topology.place(source)]]
        if not numpy.isfinite(between):
            raise self._cut(source, destination)
        return total + int(between)

    def table(self, destination: int) -> NDArray[numpy.float64]:
        """Distances in nanoseconds of all fabric nodes, by their position; infinite where there
        is no way."""
        found = self._tables.get(destination)
        if found is None:
            found = self._tables[destination] = self._compute(destination)
        return found

    def next_hops(self, node: int, destination: int) -> list[Hop]:
        """All that lie on a shortest path, in the order of their links."""
        table, position = self.table(destination), self.topology.position
        distance = table[position[node]]
        if not numpy.isfinite(distance):
            return []
        links = self.topology.links
        return [
            (link, neighbour)
            for link, neighbour in self.topology.live_links_of(node)
            if neighbour in position
            and table[position[neighbour]] + links[link].latency_ns == distance
        ]

    def path(self, source: int, destination: int, flow: int) -> list[Hop]:
        """The hops of one flow. The hash of flow and node picks among equal next hops."""
        if source == destination:
            return []
        topology = self.topology
        self._check_up(source, destination)
        here, there = topology.place(source), topology.place(destination)
        hops: list[Hop] = []
        if here != source:
            hops.append((topology.attachment[source], here))
        while here != there:
            choices = self.next_hops(here, there)
            if not choices:
                raise self._cut(source, destination)
            hop = choices[mix_pair(flow, here) % len(choices)]
            hops.append(hop)
            here = hop[1]
        if there != destination:
            hops.append((topology.attachment[destination], destination))
        return hops

    def link_loads(
        self, demands: Iterable[tuple[int, int, float]], *, hashed: bool = True
    ) -> NDArray[numpy.float64]:
        """Load of each link, by direction: column 0 is from `first` to `second`.

        Demand number n is hashed as flow n. Unhashed demands split equally at each hop."""
        loads = numpy.zeros((len(self.topology.links), 2))
        for flow, (source, destination, amount) in enumerate(demands):
            if hashed:
                here = source
                for link, neighbour in self.path(source, destination, flow):
                    loads[link, self._direction(link, here)] += amount
                    here = neighbour
            elif source != destination:
                self._split(source, destination, amount, loads)
        return loads

    def _split(
        self, source: int, destination: int, amount: float, loads: NDArray[numpy.float64]
    ) -> None:
        topology = self.topology
        self._check_up(source, destination)
        here, there = topology.place(source), topology.place(destination)
        if here != source:
            link = topology.attachment[source]
            loads[link, self._direction(link, source)] += amount
        if there != destination:
            link = topology.attachment[destination]
            loads[link, self._direction(link, there)] += amount
        if here == there:
            return
        table, position = self.table(there), topology.position
        if not numpy.isfinite(table[position[here]]):
            raise self._cut(source, destination)
        # From far to near: a node has all of its share before it passes it on.
        shares = {here: amount}
        while shares:
            node = max(shares, key=lambda one: (table[position[one]], one))
            share = shares.pop(node)
            if node == there:
                continue
            hops = self.next_hops(node, there)
            for link, neighbour in hops:
                loads[link, self._direction(link, node)] += share / len(hops)
                shares[neighbour] = shares.get(neighbour, 0.0) + share / len(hops)

    def _direction(self, link: int, start: int) -> int:
        return 0 if self.topology.links[link].first == start else 1

    # Failures

    def fail_link(self, link: int) -> None:
        if link in self.topology.failed_links:
            return
        suspects = self._users([link])
        self.topology.failed_links.add(link)
        self._matrix = None
        self._drop_cut_off(suspects)

    def fail_node(self, node: int) -> None:
        if node in self.topology.failed_nodes:
            return
        suspects = self._users(self.topology.links_of[node])
        self.topology.failed_nodes.add(node)
        self._matrix = None
        self._tables.pop(node, None)
        if node in self.topology.position:
            for table in self._tables.values():
                table[self.topology.position[node]] = numpy.inf
        self._drop_cut_off([one for one in suspects if one[0] != node and one[1] != node])

    def return_link(self, link: int) -> None:
        if link not in self.topology.failed_links:
            return
        self.topology.failed_links.discard(link)
        self._matrix = None
        if self.topology.is_link_live(link):
            self._drop_improved([link])

    def return_node(self, node: int) -> None:
        if node not in self.topology.failed_nodes:
            return
        self.topology.failed_nodes.discard(node)
        self._matrix = None
        position = self.topology.position
        if node not in position:
            return
        live = [one for one in self.topology.live_links_of(node) if one[1] in position]
        # Tables of this node itself were dropped, or say that nothing reaches it.
        self._tables.pop(node, None)
        for table in self._tables.values():
            table[position[node]] = min(
                (
                    table[position[near]] + self.topology.links[link].latency_ns
                    for link, near in live
                ),
                default=numpy.inf,
            )
        self._drop_improved([link for link, _ in live])

    def _users(self, links: Iterable[int]) -> list[tuple[int, int]]:
        """(destination, node) for each table in which a live link is a next hop of the node."""
        found: list[tuple[int, int]] = []
        position = self.topology.position
        for number in links:
            if number in self.topology.access_links or not self.topology.is_link_live(number):
                continue
            link = self.topology.links[number]
            for destination, table in self._tables.items():
                first, second = table[position[link.first]], table[position[link.second]]
                if first == second + link.latency_ns and numpy.isfinite(first):
                    found.append((destination, link.first))
                elif second == first + link.latency_ns and numpy.isfinite(second):
                    found.append((destination, link.second))
        return found

    def _drop_cut_off(self, suspects: Iterable[tuple[int, int]]) -> None:
        lost = {
            destination for destination, node in suspects if not self.next_hops(node, destination)
        }
        for destination in lost:
            del self._tables[destination]

    def _drop_improved(self, links: Iterable[int]) -> None:
        position = self.topology.position
        for number in links:
            if number in self.topology.access_links:
                continue
            link = self.topology.links[number]
            for destination, table in list(self._tables.items()):
                first, second = table[position[link.first]], table[position[link.second]]
                if first + link.latency_ns < second or second + link.latency_ns < first:
                    del self._tables[destination]

    # Dijkstra

    def _compute(self, destination: int) -> NDArray[numpy.float64]:
        self.tables_computed += 1
        if self._matrix is None:
            self._matrix = fabric_matrix(self.topology)
        if destination in self.topology.failed_nodes:
            return numpy.full(len(self.topology.fabric), numpy.inf)
        found: NDArray[numpy.float64] = dijkstra(
            self._matrix, directed=True, indices=self.topology.position[destination]
        )
        return found

    def _check_up(self, *nodes: int) -> None:
        for node in nodes:
            if not self.topology.is_up(node):
                raise Unreachable(f"{self.topology.nodes[node].name} has failed")

    def _cut(self, source: int, destination: int) -> Unreachable:
        names = self.topology.nodes[source].name, self.topology.nodes[destination].name
        return Unreachable(f"failures have cut {names[0]} off from {names[1]}")


def fabric_matrix(topology: Topology) -> csr_array:
    """Latencies of the live links between fabric nodes, both ways, by position."""
    rows: list[int] = []
    columns: list[int] = []
    weights: list[int] = []
    for number, link in enumerate(topology.links):
        if number not in topology.access_links and topology.is_link_live(number):
            first, second = topology.position[link.first], topology.position[link.second]
            rows += (first, second)
            columns += (second, first)
            weights += (link.latency_ns, link.latency_ns)
    count = len(topology.fabric)
    return csr_array(
        (numpy.array(weights, dtype=numpy.float64), (rows, columns)), shape=(count, count)
    )
