"""Spanning trees weigh what networkx's weigh; overlays connect every server."""

from __future__ import annotations

from random import Random

import networkx
import pytest

from mycel.topology import overlays
from mycel.topology.errors import BadTopology
from mycel.topology.leaf_spine import LeafSpine, build
from mycel.topology.overlays import Overlay
from mycel.topology.routes import Routes

from .graphs import as_networkx, random_topology


def _graph(overlay: Overlay) -> networkx.Graph:
    graph: networkx.Graph = networkx.Graph()
    graph.add_nodes_from(range(len(overlay)))
    graph.add_edges_from((one, other) for one, near in enumerate(overlay) for other in near)
    return graph


@pytest.mark.parametrize("seed", range(8))
def test_the_physical_tree_weighs_what_networkx_says(seed: int) -> None:
    topology = random_topology(seed)
    tree = overlays.physical_tree(topology)
    expected = networkx.minimum_spanning_tree(as_networkx(topology)).size("weight")
    assert sum(topology.links[link].latency_ns for link in tree) == expected
    assert len(tree) == len(topology.nodes) - 1


@pytest.mark.parametrize("seed", range(8))
def test_the_tree_of_places_weighs_what_the_tree_of_all_pairs_weighs(seed: int) -> None:
    topology = random_topology(seed)
    routes = Routes(topology)
    graph = _graph(overlays.spanning_tree(topology))
    assert networkx.is_tree(graph)

    def apart(one: int, other: int) -> float:
        here, there = (topology.place(topology.servers[i]) for i in (one, other))
        return float(routes.table(there)[topology.position[here]])

    pairs: networkx.Graph = networkx.Graph()
    count = len(topology.servers)
    pairs.add_weighted_edges_from(
        (one, other, apart(one, other)) for one in range(count) for other in range(one)
    )
    expected = networkx.minimum_spanning_tree(pairs).size("weight")
    assert sum(apart(one, other) for one, other in graph.edges) == expected


@pytest.mark.parametrize(("servers", "degree"), [(10, 3), (50, 4), (200, 5), (7, 6), (9, 4)])
def test_k_regular_is_regular_and_connected(servers: int, degree: int) -> None:
    overlay = overlays.k_regular(servers, degree, Random(1))
    assert {len(near) for near in overlay} == {degree}
    assert networkx.is_connected(_graph(overlay))


def test_what_cannot_be_regular_is_refused() -> None:
    with pytest.raises(BadTopology, match="cannot all have 3"):
        overlays.k_regular(7, 3, Random(1))
    with pytest.raises(BadTopology, match="degree of 9"):
        overlays.k_regular(5, 9, Random(1))


def test_shortcuts_shorten_the_tree() -> None:
    topology = build(LeafSpine(spines=2, leaves=40, servers_per_leaf=5))
    tree = _graph(overlays.spanning_tree(topology))
    short = _graph(overlays.with_shortcuts(topology, 2, Random(3)))
    assert set(tree.edges) <= set(short.edges)
    assert networkx.average_shortest_path_length(short) < networkx.average_shortest_path_length(
        tree
    )


def test_leaf_aware_overlays_keep_a_ring_below_each_leaf() -> None:
    topology = build(LeafSpine(spines=2, leaves=4, servers_per_leaf=6))
    overlay = overlays.leaf_aware(topology, 1, Random(5))
    assert networkx.is_connected(_graph(overlay))
    for server, near in enumerate(overlay):
        leaf = server // 6
        assert sum(other // 6 == leaf for other in near) == 2
        assert sum(other // 6 != leaf for other in near) >= 1
