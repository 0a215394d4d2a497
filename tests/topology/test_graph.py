"""What a topology refuses, and the leaf-spine builder."""

from __future__ import annotations

import pytest

from mycel.topology.errors import BadTopology, Disconnected
from mycel.topology.leaf_spine import LeafSpine, build
from mycel.topology.network_graph import Kind, Link, Node, Topology


def _server(name: str) -> Node:
    return Node(name, Kind.SERVER, True)


def test_every_leaf_has_a_link_to_every_spine() -> None:
    topology = build(LeafSpine(spines=3, leaves=4, servers_per_leaf=5))
    assert len(topology.servers) == 20
    assert len(topology.links) == 3 * 4 + 20
    for leaf in range(4):
        for spine in range(3):
            topology.link_between(topology.node(f"leaf-{leaf}"), topology.node(f"spine-{spine}"))


def test_without_servers_the_leaves_are_servers() -> None:
    topology = build(LeafSpine(spines=2, leaves=4))
    assert [topology.nodes[one].name for one in topology.servers] == [f"leaf-{i}" for i in range(4)]
    assert not topology.attachment


def test_oversubscription_sets_the_uplinks() -> None:
    topology = build(
        LeafSpine(
            spines=2, leaves=2, servers_per_leaf=8, access_bits_per_s=10**9, oversubscription=4.0
        )
    )
    assert topology.links[0].bandwidth_bits_per_s == 10**9  # 8 Gbit/s ÷ 4 over two uplinks


def test_pieces_are_refused_by_name() -> None:
    nodes = [_server(name) for name in "abcd"]
    links = [Link(0, 1, 1, 1), Link(2, 3, 1, 1)]
    with pytest.raises(Disconnected, match="2 pieces: a, b cannot reach"):
        Topology(nodes, links)


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ([Link(0, 1, 1, 1), Link(1, 0, 1, 1)], "two links between"),
        ([Link(0, 0, 1, 1)], "linked to itself"),
        ([Link(0, 1, 0, 1)], "at least 1 ns"),
        ([Link(0, 1, 1, 0)], "bandwidth"),
    ],
)
def test_bad_links_are_refused(links: list[Link], words: str) -> None:
    with pytest.raises(BadTopology, match=words):
        Topology([_server("a"), _server("b")], links)


def test_names_are_unique() -> None:
    with pytest.raises(BadTopology, match="two nodes are named 'a'"):
        Topology([_server("a"), _server("a")], [Link(0, 1, 1, 1)])


def test_switches_alone_are_no_cluster() -> None:
    with pytest.raises(BadTopology, match="no servers"):
        Topology([Node("a", Kind.SWITCH, False)], [])
