"""What messages and job data cost: one constant delay, or a topology's routes.

Places are numbered: servers first, then schedulers. On a topology, scheduler s sits on the server
that its number, spread evenly, falls on.
"""

from __future__ import annotations

from typing import Final, Protocol

from mycel.topology.errors import Unreachable
from mycel.topology.network_graph import Topology
from mycel.topology.routes import Routes


class Network(Protocol):
    def delay_ns(self, source: int, destination: int) -> int | None:
        """None while there is no way between them."""
        ...


class ConstantNetwork:
    """Everything is equally far from everything else."""

    def __init__(self, one_way_ns: int) -> None:
        self.one_way_ns: Final = one_way_ns

    def delay_ns(self, source: int, destination: int) -> int | None:
        return 0 if source == destination else self.one_way_ns


class RoutedNetwork:
    """Latencies of shortest paths; `software_ns` is added for each message."""

    def __init__(self, topology: Topology, schedulers: int, software_ns: int = 0) -> None:
        self.topology: Final = topology
        self.routes: Final = Routes(topology)
        self.software_ns: Final = software_ns
        servers = topology.servers
        spread = [servers[s * len(servers) // schedulers] for s in range(schedulers)]
        self.node_of: Final = (*servers, *spread)

    def delay_ns(self, source: int, destination: int) -> int | None:
        if source == destination:
            return 0
        try:
            distance = self.routes.distance_ns(self.node_of[source], self.node_of[destination])
        except Unreachable:
            return None
        return distance + self.software_ns
