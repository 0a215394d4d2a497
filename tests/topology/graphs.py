"""Random networks, and the same ones for networkx."""

from __future__ import annotations

from random import Random

import networkx

from mycel.topology.network_graph import Kind, Link, Node, Topology


def random_topology(seed: int, switches: int = 12, servers: int = 20) -> Topology:
    """Connected; some servers hang on one switch, some on two. Few weights, so ties are common."""
    random = Random(seed)
    pairs = {(i, random.randrange(i)) for i in range(1, switches)}
    while len(pairs) < 2 * switches:
        one, other = random.sample(range(switches), 2)
        pairs.add((max(one, other), min(one, other)))
    nodes = [Node(f"switch-{i}", Kind.SWITCH, False) for i in range(switches)]
    for number in range(servers):
        homes = random.sample(range(switches), random.choice((1, 1, 1, 2)))
        pairs |= {(len(nodes), home) for home in homes}
        nodes.append(Node(f"server-{number}", Kind.SERVER, True))
    links = [Link(one, other, random.randint(1, 3) * 1000, 10**9) for one, other in sorted(pairs)]
    return Topology(nodes, links)


def as_networkx(topology: Topology) -> networkx.Graph:
    graph: networkx.Graph = networkx.Graph()
    graph.add_nodes_from(i for i in range(len(topology.nodes)) if i not in topology.failed_nodes)
    for number, link in enumerate(topology.links):
        if topology.is_link_live(number):
            graph.add_edge(link.first, link.second, weight=link.latency_ns, number=number)
    return graph
