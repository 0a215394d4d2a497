"""Who gossips with whom. An overlay lists the neighbours of each server, by server number.

k_regular       random, every server has k neighbours
spanning_tree   the least total latency; servers hang on one server of their leaf
with_shortcuts  the same, plus random links that shorten it
leaf_aware      a ring within each leaf, and random links to other leaves
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import numpy
import rustworkx
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra, minimum_spanning_tree

from .errors import BadTopology
from .network_graph import Topology
from .routes import fabric_matrix

Overlay = tuple[tuple[int, ...], ...]
Edge = tuple[int, int]


def physical_tree(topology: Topology) -> list[int]:
    """The links of a minimum spanning tree of the live network."""
    graph: rustworkx.PyGraph[int, int] = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(topology.nodes)))
    for number, link in enumerate(topology.links):
        if topology.is_link_live(number):
            graph.add_edge(link.first, link.second, number)
    tree = rustworkx.minimum_spanning_edges(
        graph, weight_fn=lambda number: float(topology.links[number].latency_ns)
    )
    return sorted(number for _, _, number in tree)


def k_regular(servers: int, degree: int, random: Random) -> Overlay:
    """Unions of random cycles, and one random matching if the degree is odd: always connected."""
    if not 2 <= degree < servers:
        raise BadTopology(f"a degree of {degree} needs more servers than that, and is at least 2")
    if degree % 2 and servers % 2:
        raise BadTopology(f"{servers} servers cannot all have {degree} neighbours: choose even")
    for _ in range(1000):
        edges: set[Edge] = set()
        for _ in range(degree // 2):
            edges |= set(_cycle(random.sample(range(servers), servers)))
        if degree % 2:
            order = random.sample(range(servers), servers)
            edges |= {_edge(*order[i : i + 2]) for i in range(0, servers, 2)}
        if len(edges) == servers * degree // 2:
            return _overlay(servers, edges)
        # A repeated edge was drawn. Small graphs need many tries, large ones a handful.
    return _dense_regular(servers, degree)


def _dense_regular(servers: int, degree: int) -> Overlay:
    """Circulant, for small dense overlays in which random cycles nearly always collide."""
    edges = {
        _edge(one, (one + step) % servers)
        for one in range(servers)
        for step in range(1, degree // 2 + 1)
    }
    if degree % 2:
        edges |= {_edge(one, (one + servers // 2) % servers) for one in range(servers)}
    return _overlay(servers, edges)


def spanning_tree(topology: Topology) -> Overlay:
    return _overlay(len(topology.servers), _tree_edges(topology))


def with_shortcuts(topology: Topology, shortcuts_per_server: int, random: Random) -> Overlay:
    count = len(topology.servers)
    edges = set(_tree_edges(topology))
    for server in range(count):
        for _ in range(shortcuts_per_server if count > 1 else 0):
            other = random.randrange(count - 1)
            edges.add(_edge(server, other + (other >= server)))
    return _overlay(count, edges)


def leaf_aware(topology: Topology, links_to_other_leaves: int, random: Random) -> Overlay:
    """Most gossip stays below one leaf; a few links per server leave it."""
    count = len(topology.servers)
    edges: set[Edge] = set()
    groups = _groups(topology)
    for group in groups:
        if len(group) > 1:
            edges |= set(_cycle(group))
    for group in groups:
        outside = sorted(set(range(count)) - set(group))
        for server in group if outside else ():
            chosen = random.sample(outside, min(links_to_other_leaves, len(outside)))
            edges |= {_edge(server, other) for other in chosen}
    return _overlay(count, edges)


def _groups(topology: Topology) -> list[list[int]]:
    """Servers by the fabric node they hang on."""
    groups: dict[int, list[int]] = {}
    for server, node in enumerate(topology.servers):
        groups.setdefault(topology.place(node), []).append(server)
    return list(groups.values())


def _tree_edges(topology: Topology) -> list[Edge]:
    """The spanning tree of the servers' distances, without ever computing all of them.

    Each fabric node belongs to its nearest server place. The links that join two regions are
    enough: the tree of these candidates weighs what the tree of all pairs weighs (Mehlhorn)."""
    groups = _groups(topology)
    places = [topology.position[topology.place(topology.servers[group[0]])] for group in groups]
    edges = [_edge(group[0], other) for group in groups for other in group[1:]]
    number_of = {place: number for number, place in enumerate(places)}
    matrix = fabric_matrix(topology)
    distance, _, nearest = dijkstra(
        matrix, directed=True, indices=places, min_only=True, return_predecessors=True
    )
    entries = coo_array(matrix)
    near, far = nearest[entries.row], nearest[entries.col]
    joins = (near != far) & (near >= 0) & (far >= 0)
    lengths = distance[entries.row] + entries.data + distance[entries.col]
    best: dict[Edge, float] = {}
    for first, second, length in zip(near[joins], far[joins], lengths[joins], strict=True):
        pair = _edge(number_of[int(first)], number_of[int(second)])
        best[pair] = min(best.get(pair, numpy.inf), float(length))
    rows, columns = [one[0] for one in best], [one[1] for one in best]
    candidates = coo_array((list(best.values()), (rows, columns)), shape=(len(places),) * 2)
    tree = coo_array(minimum_spanning_tree(candidates.tocsr()))
    for first, second in zip(tree.row, tree.col, strict=True):
        edges.append(_edge(groups[int(first)][0], groups[int(second)][0]))
    return edges


def _cycle(order: list[int]) -> Iterable[Edge]:
    return (_edge(one, other) for one, other in zip(order, order[1:] + order[:1], strict=True))


def _edge(first: int, second: int) -> Edge:
    return (first, second) if first < second else (second, first)


def _overlay(count: int, edges: Iterable[Edge]) -> Overlay:
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for first, second in edges:
        if first != second:
            neighbours[first].add(second)
            neighbours[second].add(first)
    return tuple(tuple(sorted(one)) for one in neighbours)
