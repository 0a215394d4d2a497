"""What is held of a cluster in some span of time, and which vertices are down.

Only vertices that differ from an idle cluster are written down. For each of them and all above
it: how many jobs use it, what is taken below it, and which of its children differ. The matcher
answers for the rest by kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .cluster_graph import ClusterGraph


class Occupancy:
    def __init__(self, graph: ClusterGraph) -> None:
        self.graph = graph
        self.exclusive: dict[int, int] = {}
        """Vertices that jobs hold for themselves, and how many jobs do: an overrunning job and
        its successor may be two."""
        self.uses: dict[int, int] = {}
        """How many jobs hold the vertex or something below it."""
        self.status: dict[int, bool] = {}
        """Up or down, where it is not as the graph says."""
        self.differing: dict[int, set[int]] = {}
        """Children that differ from an idle cluster."""
        self.taken: dict[int, dict[str, int]] = {}
        """How much of each type is held below."""

    def differs(self, vertex: int) -> bool:
        return vertex in self.uses or vertex in self.status or vertex in self.differing

    def is_up(self, vertex: int) -> bool:
        return self.status.get(vertex, self.graph.kind(vertex).up)

    def hold(self, vertices: Sequence[int]) -> None:
        """One job's exclusive vertices, none of which lies below another."""
        self._change(vertices, 1)

    def release(self, vertices: Sequence[int]) -> None:
        self._change(vertices, -1)

    def set_status(self, vertex: int, up: bool) -> None:
        if self.graph.kind(vertex).up == up:
            self.status.pop(vertex, None)
        else:
            self.status[vertex] = up
        self._note(vertex)

    def _change(self, vertices: Sequence[int], step: int) -> None:
        graph, touched = self.graph, dict[int, None]()
        for vertex in vertices:
            _add(self.exclusive, vertex, step)
            touched[vertex] = None
            kind = graph.kind(vertex)
            below = kind.totals.items()
            for above in graph.ancestors(vertex):
                touched[above] = None
                taken = self.taken.setdefault(above, {})
                _add(taken, kind.type, kind.size * step)
                for name, amount in below:
                    _add(taken, name, amount * step)
                if not taken:
                    del self.taken[above]
        for vertex in touched:
            _add(self.uses, vertex, step)
        for vertex in vertices:
            self._note(vertex)

    def _note(self, vertex: int) -> None:
        """Keeps `differing` true for the vertex and all above it."""
        parent = self.graph.parent(vertex)
        while parent >= 0:
            siblings = self.differing.get(parent)
            if self.differs(vertex):
                if siblings is None:
                    self.differing[parent] = {vertex}
                else:
                    siblings.add(vertex)
            elif siblings is not None:
                siblings.discard(vertex)
                if not siblings:
                    del self.differing[parent]
            vertex, parent = parent, self.graph.parent(parent)


def _add(counts: dict[Any, int], key: Any, step: int) -> None:
    value = counts.get(key, 0) + step
    if value:
        counts[key] = value
    else:
        counts.pop(key, None)
