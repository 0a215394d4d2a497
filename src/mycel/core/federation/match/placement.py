"""Which vertices a job gets, once it is known to fit: the first that do, in the graph's order."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mycel.core.federation.graph.cluster_graph import ROOT, ClusterGraph
from mycel.core.federation.request.request_tree import SLOT

from .matcher import Search, share_of
from .request_levels import Level, Wanted
from .slot_packing import bundles

Slot = tuple[int, ...]


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
    candidates: list[tuple[str, int | Slot]] = []
    if search.graph.root_kind.type in top.types:
        candidates.append((search.graph.root_kind.type, ROOT))
    else:
        candidates.extend(placer.offers(ROOT, top, True, False))
    placer.choose(candidates, top, True, False)
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

    def choose(
        self,
        candidates: list[tuple[str, int | Slot]],
        level: Level,
        pristine: bool,
        exclusive: bool,
    ) -> None:
        """Takes of each request as many as it accepts."""
        for wanted in level.wanted:
            offered = [one for name, one in candidates if name == wanted.request.type]
            left = wanted.request.count.largest(sum(map(self._size, offered)))
            for one in offered:
                if left <= 0:
                    break
                left -= self._size(one)
                if isinstance(one, tuple):
                    self._take_slot(one, wanted)
                else:
                    self._take(one, wanted, exclusive)

    def _size(self, one: int | Slot) -> int:
        return 1 if isinstance(one, tuple) else self._graph.kind(one).size

    def _take_slot(self, members: Slot, slot: Wanted) -> None:
        by_type = slot.contents.by_type
        for vertex in members:
            self._take(vertex, by_type[self._graph.kind(vertex).type], True)

    def _take(self, vertex: int, wanted: Wanted, exclusive: bool) -> None:
        inside = exclusive or wanted.request.exclusive is True
        if wanted.request.exclusive is True:
            # All of it, also what nobody asked for.
            self._exclusive.update(dict.fromkeys(self._graph.subtree(vertex)))
        (self._exclusive if inside else self._shared)[vertex] = None
        contents = wanted.contents
        if not contents.wanted:
            return
        below = list(self._contents(vertex, wanted, inside))
        self.choose(below, contents, self._query.compiled.job.skips_levels, inside)

    def _contents(
        self, vertex: int, wanted: Wanted, exclusive: bool
    ) -> Iterator[tuple[str, int | Slot]]:
        """The candidates below a vertex that was taken for a request."""
        alone = Level(-1, {wanted.request.type: wanted}, None, frozenset((wanted.request.type,)))
        step = self._query.step(self._graph.kind(vertex), alone, False)
        assert step is not None, "it was matched"
        below, open_, slot = step
        if slot:
            yield from self._slots(vertex, below, open_)
        else:
            yield from self._children(vertex, below, open_, exclusive)

    def offers(
        self, vertex: int, level: Level, pristine: bool, exclusive: bool
    ) -> Iterator[tuple[str, int | Slot]]:
        """What a vertex that nobody asked for hands up."""
        step = self._query.step(self._graph.kind(vertex), level, pristine)
        if step is None:
            return
        below, open_, slot = step
        if slot:
            yield from self._slots(vertex, below, open_)
        else:
            yield from self._children(vertex, below, open_, exclusive)

    def _children(
        self, vertex: int, level: Level, pristine: bool, exclusive: bool
    ) -> Iterator[tuple[str, int | Slot]]:
        for child in self._graph.children(vertex):
            answer = self._search.visit(child, level, pristine, exclusive)
            if answer is None:
                continue
            name = self._graph.kind(child).type
            if name in level.types:
                yield name, child
            if answer:
                yield from self.offers(child, level, pristine, exclusive)

    def _slots(
        self, vertex: int, contents: Level, pristine: bool
    ) -> Iterator[tuple[str, int | Slot]]:
        found = list(self._children(vertex, contents, pristine, True))
        parts: list[list[list[int]]] = []
        for wanted in contents.wanted:
            members = [
                one for name, one in found if name == wanted.request.type and isinstance(one, int)
            ]
            sizes = [self._graph.kind(one).size for one in members]
            per_slot = share_of(wanted.request.count, sum(sizes))
            parts.append([[members[p] for p in bundle] for bundle in bundles(sizes, per_slot)])
        for bundle in zip(*parts, strict=False):
            yield SLOT, tuple(vertex for part in bundle for vertex in part)
