"""The rules of matching, tried out: no aggregates, no kinds, no formulas.

Sets of vertices are enumerated, and a set serves a request if every member can do its part and
no vertex is used twice. It takes exponential time and is only for graphs of some ten vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations

from mycel.core.federation.graph.cluster_graph import ROOT, ClusterGraph
from mycel.core.federation.request.alternatives import variants
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
        self.variants = variants(job)
        self.held = held
        self.check_status = check_status

    def fits(self) -> bool:
        return any(
            supported(one.resources, False, one.skips_levels)
            and self.serve_all(ROOT, one.resources)
            for one in self.variants
        )

    def serve_all(self, root: int, top: Requests) -> bool:
        if top[0].type == SLOT:
            made = sum(self.slots(at, top) for at in self.anchors(root, top))
            return any(acceptable(top[0].count, made))
        return self.enough(top, {one: self.reachable(root, top, one) for one in set(top)})

    # Who can be reached

    def reachable(self, vertex: int, level: Requests, wanted: Request) -> list[int]:
        """Vertices that serve `wanted` below or at a vertex, with nothing matched above them."""
        if self.blocked(vertex):
            return []
        kind = self.graph.kind(vertex)
        if any(one.type == kind.type for one in level):
            fits = wanted.type == kind.type and self.serves(vertex, wanted, False)
            return [vertex] if fits else []
        return [
            found
            for child in self.graph.children(vertex)
            for found in self.reachable(child, level, wanted)
        ]

    def anchors(self, vertex: int, slots: Requests) -> list[int]:
        """The first vertices on each way down that have some slot's contents right below."""
        if self.blocked(vertex):
            return []
        if self.is_anchor(vertex, slots):
            return [vertex]
        below = self.graph.children(vertex)
        return [found for child in below for found in self.anchors(child, slots)]

    def is_anchor(self, vertex: int, slots: Requests) -> bool:
        types = {self.graph.kind(child).type for child in self.graph.children(vertex)}
        return any(all(one.type in types for one in slot.contents) for slot in slots)

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
        if contents and contents[0].type == SLOT:
            if self.is_anchor(vertex, contents):
                return any(acceptable(contents[0].count, self.slots(vertex, contents)))
            below = [
                child
                for child in self.graph.children(vertex)
                if not self.blocked(child) and self.is_anchor(child, contents)
            ]
            made = sum(self.slots(child, contents) for child in below)
            return any(acceptable(contents[0].count, made))
        children = list(self.graph.children(vertex))
        able = {
            part: [one for one in children if self.serves(one, part, inside)]
            for part in set(contents)
        }
        return self.enough(contents, able)

    def enough(self, requests: Requests, able: dict[Request, list[int]]) -> bool:
        """Whether each request can have an acceptable amount, and no vertex serves two."""
        wanted = [(one, next(acceptable(one.count, one.count.minimum))) for one in requests]
        return self.given(wanted, able) is not None

    def given(
        self,
        wanted: list[tuple[Request, int]],
        able: dict[Request, list[int]],
        used: frozenset[int] = frozenset(),
    ) -> frozenset[int] | None:
        """All vertices in use, after each request has got its amount in some way."""
        return next(self.ways(wanted, able, used), None)

    def ways(
        self,
        wanted: list[tuple[Request, int]],
        able: dict[Request, list[int]],
        used: frozenset[int],
    ) -> Iterator[frozenset[int]]:
        if not wanted:
            yield used
            return
        (request, amount), *rest = wanted
        free = [one for one in able[request] if one not in used]
        for number in range(1, len(free) + 1):
            for chosen in combinations(free, number):
                sizes = [self.graph.kind(one).size for one in chosen]
                if sum(sizes) >= amount > sum(sizes) - min(sizes):
                    yield from self.ways(rest, able, used.union(chosen))

    def slots(self, vertex: int, slots: Requests) -> int:
        """The most slots that can be made of whole children, by trying all divisions."""
        children = list(self.graph.children(vertex))
        parts = {part for slot in slots for part in slot.contents}
        able = {part: [one for one in children if self.serves(one, part, True)] for part in parts}
        recipes = [recipe for slot in slots if (recipe := self.recipe(slot, able))]

        @cache
        def most(used: frozenset[int]) -> int:
            ways = (way for recipe in recipes for way in self.ways(recipe, able, used))
            return max((1 + most(way) for way in ways), default=0)

        return most(frozenset())

    def recipe(
        self, slot: Request, able: dict[Request, list[int]]
    ) -> list[tuple[Request, int]] | None:
        """What one slot takes: of a range the most that leaves the others their least."""
        found = [(part, part.count.minimum) for part in slot.contents]
        if self.given(found, able) is None:
            return None
        for place, part in enumerate(slot.contents):
            there = sum(self.graph.kind(one).size for one in able[part])
            for amount in sorted(acceptable(part.count, there), reverse=True):
                tried = [*found[:place], (part, amount), *found[place + 1 :]]
                if self.given(tried, able) is not None:
                    found = tried
                    break
        return found


def supported(level: Requests, inside: bool, skips: bool) -> bool:
    """Slots stand beside slots alone; then they are alternatives, with one and the same count."""
    slots = [one for one in level if one.type == SLOT]
    if slots and (len(slots) < len(level) or any(one.count != slots[0].count for one in slots)):
        return False
    if len(slots) > 1 and skips:
        return False
    for one in level:
        if inside and one.exclusive is False and one.type != SLOT:
            return False
        if one.type == SLOT and any(content.type == SLOT for content in one.contents):
            return False
        below = inside or one.type == SLOT or one.exclusive is True
        if not supported(one.contents, below, skips):
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
