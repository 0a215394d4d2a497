"""The rules of matching, tried out: no aggregates, no kinds, no formulas.

Sets of vertices are enumerated, and a set serves a request if every member can do its part and
no vertex is used twice. It takes exponential time and is only for graphs of some ten vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations

from mycel.core.federation.graph.cluster_graph import ROOT, ClusterGraph
from mycel.core.federation.request.constraints import CONSTRAINED_TYPES
from mycel.core.federation.request.counts import Count
from mycel.core.federation.request.request_tree import SLOT, JobRequest, Request

Requests = tuple[Request, ...]


class BruteForce:
    def __init__(
        self,
        graph: ClusterGraph,
        job: JobRequest,
        *,
        held: frozenset[int] = frozenset(),
        check_status: bool = False,
    ) -> None:
        self.graph = graph
        self.job = job
        self.held = held
        self.check_status = check_status

    def fits(self) -> bool:
        if not supported(self.job.resources, False):
            return False
        top = self.job.resources
        if len(top) == 1 and top[0].type == SLOT:
            slots = sum(self.slots(at, top[0]) for at in self.anchors(ROOT, top[0]))
            return any(acceptable(top[0].count, slots))
        return all(self.enough(self.reachable(ROOT, top, one), one.count) for one in top)

    # Who can be reached

    def reachable(self, vertex: int, level: Requests, wanted: Request) -> list[int]:
        """Vertices that serve `wanted` below or at a vertex, with nothing matched above them."""
        if self.blocked(vertex):
            return []
        kind = self.graph.kind(vertex)
        asked = next((one for one in level if one.type == kind.type), None)
        if asked is not None:
            return [vertex] if asked is wanted and self.serves(vertex, asked, False) else []
        return [
            found
            for child in self.graph.children(vertex)
            for found in self.reachable(child, level, wanted)
        ]

    def anchors(self, vertex: int, slot: Request) -> list[int]:
        """The first vertices on each way down that have the slot's contents right below."""
        if self.blocked(vertex):
            return []
        if self.is_anchor(vertex, slot):
            return [vertex]
        below = self.graph.children(vertex)
        return [found for child in below for found in self.anchors(child, slot)]

    def is_anchor(self, vertex: int, slot: Request) -> bool:
        types = {self.graph.kind(child).type for child in self.graph.children(vertex)}
        return all(one.type in types for one in slot.contents)

    def blocked(self, vertex: int) -> bool:
        kind = self.graph.kind(vertex)
        if vertex in self.held or not kind.size or (self.check_status and not kind.up):
            return True
        return kind.type in CONSTRAINED_TYPES and not self.job.constraint.accepts(
            kind.properties, self.graph.name(vertex), self.graph.rank(vertex)
        )

    # Who can serve

    def serves(self, vertex: int, wanted: Request, exclusive: bool) -> bool:
        if self.graph.kind(vertex).type != wanted.type or self.blocked(vertex):
            return False
        inside = exclusive or wanted.exclusive is True
        if inside and any(one in self.held for one in self.graph.subtree(vertex)):
            return False
        contents = wanted.contents
        if len(contents) == 1 and contents[0].type == SLOT:
            slot = contents[0]
            if self.is_anchor(vertex, slot):
                return any(acceptable(slot.count, self.slots(vertex, slot)))
            below = [
                child
                for child in self.graph.children(vertex)
                if not self.blocked(child) and self.is_anchor(child, slot)
            ]
            made = sum(self.slots(child, slot) for child in below)
            return any(acceptable(slot.count, made))
        children = list(self.graph.children(vertex))
        return all(
            self.enough([one for one in children if self.serves(one, part, inside)], part.count)
            for part in contents
        )

    def enough(self, candidates: list[int], count: Count) -> bool:
        """Whether some set of them amounts to an acceptable count."""
        sizes = [self.graph.kind(one).size for one in candidates]
        return any(
            any(acceptable(count, sum(chosen)))
            for number in range(1, len(sizes) + 1)
            for chosen in combinations(sizes, number)
        )

    def slots(self, vertex: int, slot: Request) -> int:
        """The most slots that can be made of whole children, by trying all divisions."""
        fewest = None
        for part in slot.contents:
            sizes = [
                self.graph.kind(child).size
                for child in self.graph.children(vertex)
                if self.serves(child, part, True)
            ]
            wanted = max(acceptable(part.count, sum(sizes)), default=0)
            made = most_bundles(tuple(sorted(sizes)), wanted) if wanted else 0
            fewest = made if fewest is None else min(fewest, made)
        return fewest or 0


def supported(level: Requests, inside: bool) -> bool:
    """Siblings of one type, and slots beside others, are not matched."""
    types = [one.type for one in level]
    if len(set(types)) < len(types) or (SLOT in types and len(types) > 1):
        return False
    for one in level:
        if inside and one.exclusive is False and one.type != SLOT:
            return False
        below = inside or one.type == SLOT or one.exclusive is True
        if not supported(one.contents, below):
            return False
    return True


def acceptable(count: Count, available: int) -> Iterator[int]:
    """Every acceptable count up to what is available."""
    if count.values:
        yield from (value for value in count.values if value <= available)
        return
    value = count.minimum
    while value <= min(available, count.maximum):
        yield value
        match count.operator:
            case "+":
                value += count.operand
            case "*":
                value *= count.operand
            case "^":
                value **= count.operand


@cache
def most_bundles(sizes: tuple[int, ...], wanted: int) -> int:
    best = 0
    for number in range(1, len(sizes) + 1):
        for chosen in combinations(range(len(sizes)), number):
            if sum(sizes[one] for one in chosen) < wanted:
                continue
            rest = tuple(size for one, size in enumerate(sizes) if one not in chosen)
            best = max(best, 1 + most_bundles(rest, wanted))
    return best
