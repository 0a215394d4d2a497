"""A cluster in one line: how much there is of each type. Records and gossip carry only this."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mycel.core.ranges import Size

from .cluster_graph import ClusterGraph


class Summary(msgspec.Struct, frozen=True):
    totals: dict[str, Size]
    most: dict[str, Size] = {}
    """How much of each type one vertex contains at most: cores in a socket, nodes in a rack."""

    @property
    def nodes(self) -> int:
        return self.totals.get("node", 0)


def summarise(graph: ClusterGraph) -> Summary:
    return Summary(dict(sorted(graph.totals().items())), dict(graph.root_kind.most))


def lacks(needs: Mapping[str, int], there: Mapping[str, int]) -> bool:
    for name, amount in needs.items():  # noqa: SIM110 - it is called for every cluster
        if there.get(name, 0) < amount:
            return True
    return False


def shortfall(needs: Mapping[str, int], totals: Mapping[str, int]) -> str:
    """What there is too little of; empty if it could do."""
    for name, amount in needs.items():
        there = totals.get(name, 0)
        if there < amount:
            return f"{amount} {name} are wanted, there are {there}"
    return ""
