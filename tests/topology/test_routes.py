"""Distances, equal-cost paths and loads agree with networkx, also while things fail."""

from __future__ import annotations

from random import Random

import networkx
import numpy
import pytest

from mycel.topology.errors import Unreachable
from mycel.topology.leaf_spine import LeafSpine, build
from mycel.topology.network_graph import Topology
from mycel.topology.routes import Routes

from .graphs import as_networkx, random_topology


def _check_all_distances(topology: Topology, routes: Routes) -> None:
    expected = dict(networkx.all_pairs_dijkstra_path_length(as_networkx(topology)))
    for one in topology.servers:
        for other in topology.servers:
            if one in expected and other in expected[one]:
                assert routes.distance_ns(one, other) == expected[one][other]
            elif one != other:
                with pytest.raises(Unreachable):
                    routes.distance_ns(one, other)


@pytest.mark.parametrize("seed", range(8))
def test_distances_are_those_of_networkx(seed: int) -> None:
    topology = random_topology(seed)
    _check_all_distances(topology, Routes(topology))


@pytest.mark.parametrize("seed", range(8))
def test_distances_stay_right_through_failures_and_returns(seed: int) -> None:
    topology = random_topology(seed)
    routes = Routes(topology)
    random = Random(seed)
    for _ in range(25):
        _check_all_distances(topology, routes)
        if random.random() < 0.5:
            link = random.randrange(len(topology.links))
            change = routes.return_link if link in topology.failed_links else routes.fail_link
            change(link)
        else:
            node = random.randrange(len(topology.nodes))
            move = routes.return_node if node in topology.failed_nodes else routes.fail_node
            move(node)
    _check_all_distances(topology, routes)


@pytest.mark.parametrize("seed", range(5))
def test_flows_take_every_shortest_path_and_no_other(seed: int) -> None:
    topology = random_topology(seed)
    routes, graph = Routes(topology), as_networkx(topology)
    random = Random(seed)
    for _ in range(20):
        source, destination = random.sample(topology.servers, 2)
        expected = {
            tuple(path)
            for path in networkx.all_shortest_paths(graph, source, destination, "weight")
        }
        taken = {
            (source, *(node for _, node in routes.path(source, destination, flow)))
            for flow in range(400)
        }
        assert taken == expected


@pytest.mark.parametrize("seed", range(5))
def test_split_loads_are_those_of_equal_splitting_over_networkx_distances(seed: int) -> None:
    topology = random_topology(seed)
    graph = as_networkx(topology)
    source, destination = topology.servers[0], topology.servers[-1]
    distance = networkx.single_source_dijkstra_path_length(graph, destination)
    expected: dict[tuple[int, int], float] = {}
    share = dict.fromkeys(graph.nodes, 0.0)
    share[source] = 1.0
    for node in sorted(graph.nodes, key=lambda one: -distance[one]):
        onward = [
            near
            for near in graph.neighbors(node)
            if distance[near] + graph[node][near]["weight"] == distance[node]
        ]
        for near in onward:
            expected[node, near] = share[node] / len(onward)
            share[near] += share[node] / len(onward)
    loads = Routes(topology).link_loads([(source, destination, 1.0)], hashed=False)
    for number, link in enumerate(topology.links):
        assert loads[number, 0] == pytest.approx(expected.get((link.first, link.second), 0.0))
        assert loads[number, 1] == pytest.approx(expected.get((link.second, link.first), 0.0))


def test_hashing_spreads_flows_over_the_spines() -> None:
    topology = build(LeafSpine(spines=4, leaves=2, servers_per_leaf=2))
    source, destination = topology.node("server-0"), topology.node("server-3")
    loads = Routes(topology).link_loads([(source, destination, 1.0)] * 4000)
    uplinks = [topology.link_between(topology.node("leaf-0"), spine) for spine in range(4)]
    assert loads[uplinks].sum() == 4000
    assert all(900 < load < 1100 for load in loads[uplinks].sum(axis=1))


def test_a_lost_uplink_costs_two_tables_of_many() -> None:
    topology = build(LeafSpine(spines=4, leaves=30, servers_per_leaf=2))
    routes = Routes(topology)
    for node in topology.fabric:
        routes.table(node)
    before = routes.tables_computed
    link = topology.link_between(topology.node("leaf-3"), topology.node("spine-1"))
    routes.fail_link(link)
    for node in topology.fabric:
        routes.table(node)
    # Only the ways to leaf-3 and to spine-1 have become longer anywhere.
    assert routes.tables_computed - before == 2
    routes.return_link(link)
    for node in topology.fabric:
        routes.table(node)
    assert routes.tables_computed - before == 4


def test_routes_move_to_the_other_spine() -> None:
    topology = build(LeafSpine(spines=2, leaves=2))
    routes = Routes(topology)
    one, other = topology.servers
    assert {routes.path(one, other, flow)[0][1] for flow in range(50)} == {0, 1}
    routes.fail_node(topology.node("spine-0"))
    assert {routes.path(one, other, flow)[0][1] for flow in range(50)} == {1}
    routes.fail_node(topology.node("spine-1"))
    with pytest.raises(Unreachable, match="leaf-0 off from leaf-1"):
        routes.path(one, other, 0)
    routes.return_node(topology.node("spine-0"))
    assert routes.distance_ns(one, other) == 4_000


def test_tables_hold_switches_only() -> None:
    topology = build(LeafSpine(spines=2, leaves=3, servers_per_leaf=50))
    assert Routes(topology).table(topology.node("leaf-0")).shape == (5,)
    assert numpy.isfinite(Routes(topology).table(topology.node("leaf-0"))).all()
