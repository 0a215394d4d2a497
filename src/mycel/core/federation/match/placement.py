"""Which vertices a job gets, once it is known to fit: the first that do, in the graph's order."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mycel.core.federation.graph.cluster_graph import ROOT, ClusterGraph
from mycel.core.federation.request.request_tree import SLOT

from .candidates import ALONE, Served
from .matcher import Search
from .request_levels import Level, Wanted, only
from .slot_building import Offer, build_slots, share_out

Slot = tuple[tuple[int, Wanted], ...]
Offered = tuple[str, Offer[int] | Slot]


class Placement(msgspec.Struct, frozen=True):
    exclusive: tuple[int, ...]
    """Held by this job alone."""
    shared: tuple[int, ...]
    """Above those, or asked for without exclusivity."""

    def topmost(self, graph: ClusterGraph) -> tuple[int, ...]:
        """Without what lies below others: nobody can get there anyway."""
        kept: list[int] = []
        for vertex in sorted(self.exclusive):
            if not kept or vertex not in graph.subtree(kept[-1]):
                kept.append(vertex)
        return tuple(kept)

    def takes(self, graph: ClusterGraph) -> dict[str, int]:
        counted: dict[str, int] = {}
        for word, vertices in (("exclusive", self.exclusive), ("shared", self.shared)):
            for vertex in vertices:
                kind = graph.kind(vertex)
                key = f"{kind.type}:{word}"
                counted[key] = counted.get(key, 0) + kind.size
        return counted


def place(search: Search, whole: frozenset[str] = frozenset()) -> Placement | None:
    """None if it does not fit. Vertices of the types in `whole` are never shared: who gets
    something of one gets all of it."""
    if not search.fits():
        return None
    placer = _Placer(search)
    top = search.query.compiled.top
    placer.choose(list(placer.offered_by(ROOT, top, True, False)), top, False)
    return _widened(placer.result(), search.graph, whole) if whole else placer.result()


def _widened(found: Placement, graph: ClusterGraph, whole: frozenset[str]) -> Placement:
    exclusive = dict.fromkeys(found.exclusive)
    for vertex in (*found.exclusive, *found.shared):
        for one in (vertex, *graph.ancestors(vertex)):
            if graph.kind(one).type in whole:
                exclusive.update(dict.fromkeys(graph.subtree(one)))
    above = {one for vertex in exclusive for one in graph.ancestors(vertex)}
    shared = (above | set(found.shared)) - set(exclusive)
    return Placement(tuple(sorted(exclusive)), tuple(sorted(shared)))


class _Placer:
    def __init__(self, search: Search) -> None:
        self._search = search
        self._graph = search.graph
        self._query = search.query
        self._exclusive: dict[int, None] = {}
        self._shared: dict[int, None] = {}

    def result(self) -> Placement:
        held = self._exclusive
        shared = dict(self._shared)
        for vertex in held:
            for above in self._graph.ancestors(vertex):
                shared[above] = None
        for vertex in held:
            shared.pop(vertex, None)
        return Placement(tuple(sorted(held)), tuple(sorted(shared)))

    def choose(self, candidates: list[Offered], level: Level, exclusive: bool) -> None:
        """Takes of each request as many as it accepts."""
        if level.slot is not None:
            slots = [one for _, one in candidates if not isinstance(one, Offer)]
            for slot in slots[: level.slot.request.count.largest(len(slots))]:
                for vertex, wanted in slot:
                    self._take(vertex, wanted, True)
            return
        by_type: dict[str, list[Offer[int]]] = {}
        for name, one in candidates:
            if isinstance(one, Offer):
                by_type.setdefault(name, []).append(one)
        for type_, wanted in level.by_type.items():
            offered = by_type.get(type_, [])
            left = wanted.request.count.largest(sum(one.size for one in offered))
            for one in offered:
                if left <= 0:
                    break
                left -= one.size
                self._take(one.item, wanted, exclusive)
        for type_, family in level.families.items():
            shared = share_out(level, type_, by_type.get(type_, []), self._query.searches)
            for wanted, vertices in zip(family.members, shared, strict=True):
                for vertex in vertices:
                    self._take(vertex, wanted, exclusive)

    def _take(self, vertex: int, wanted: Wanted, exclusive: bool) -> None:
        inside = exclusive or wanted.request.exclusive is True
        if wanted.request.exclusive is True:
            # All of it, also what nobody asked for.
            self._exclusive.update(dict.fromkeys(self._graph.subtree(vertex)))
        (self._exclusive if inside else self._shared)[vertex] = None
        contents = wanted.contents
        if contents.slot is None and not contents.asked:
            return
        self.choose(list(self._offers(vertex, only(wanted), False, inside)), contents, inside)

    def offered_by(
        self, vertex: int, level: Level, pristine: bool, exclusive: bool
    ) -> Iterator[Offered]:
        """The vertex itself, if it is asked for, or else what it hands up."""
        answer = self._search.visit(vertex, level, pristine, exclusive)
        if answer is None:
            return
        kind = self._graph.kind(vertex)
        if kind.type in level.types:
            yield kind.type, Offer(ALONE, kind.size, vertex)
        elif kind.type in level.families:
            (key,) = answer
            assert isinstance(key, Served), "its type is requested several times"
            yield kind.type, Offer(key.able, kind.size, vertex)
        elif answer:
            yield from self._offers(vertex, level, pristine, exclusive)

    def _offers(
        self, vertex: int, level: Level, pristine: bool, exclusive: bool
    ) -> Iterator[Offered]:
        """What lies below."""
        step = self._query.step(self._graph.kind(vertex), level, pristine)
        assert step is not None, "it was matched"
        below, open_, slot = step
        if slot:
            found: dict[str, list[Offer[int]]] = {}
            for name, one in self._children(vertex, below, open_, True):
                if isinstance(one, Offer):
                    found.setdefault(name, []).append(one)
            for made in build_slots(below, found, self._query.searches):
                yield SLOT, tuple(made)
        else:
            yield from self._children(vertex, below, open_, exclusive)

    def _children(
        self, vertex: int, level: Level, pristine: bool, exclusive: bool
    ) -> Iterator[Offered]:
        for child in self._graph.children(vertex):
            yield from self.offered_by(child, level, pristine, exclusive)
