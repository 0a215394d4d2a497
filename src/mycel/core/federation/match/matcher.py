"""Whether a job fits a cluster, and where.

    visit(vertex, level)
      the level asks for a slot whose contents lie right below    → build slots here
      the level asks for this type                                → visit below with its contents
      nothing was matched on the way down yet                     → pass, visit below with the same
      otherwise                                                   → no

    A vertex that passes hands its candidates up. One that is asked for keeps as many as its
    contents want; if there are fewer than the least acceptable count, it does not fit.

The rules are Fluxion's: a request may leave out what lies above it, but no level below it,
unless the format says otherwise (`skips_levels`). A slot takes whole vertices. Inside a slot,
and below `exclusive: true`, a vertex must be unused; vertices above are shared.

Answers for untouched subtrees are kept by kind, so that a thousand equal nodes cost one visit.
Pruning by what lies below (`Kind.totals`, less what is taken) changes no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from mycel.core.federation.graph.cluster_graph import ROOT, ClusterGraph
from mycel.core.federation.graph.occupancy import Occupancy
from mycel.core.federation.graph.subsystems import attached, describe
from mycel.core.federation.graph.vertex_kinds import Kind
from mycel.core.federation.request.constraints import CONSTRAINED_TYPES
from mycel.core.federation.request.request_tree import SLOT

from .candidates import (
    NOTHING,
    NOTHING_OF_IT,
    Candidates,
    Found,
    collect,
    served,
    supply_of,
    total,
)
from .division import Demand, available, can_divide
from .request_levels import Compiled, Level, Wanted, too_little
from .searches import Searches
from .slot_choice import mix

_Child = tuple[Kind, "Candidates | None", int]


class Shortage(msgspec.Struct, frozen=True):
    """What was missing below the vertex that came closest."""

    wanted: Wanted
    found: int
    parent: str
    beside: bool = False
    """Whether others of its type were wanted beside it, and took theirs first."""


class Query:
    """One job, asked of any number of clusters that share a table of kinds."""

    def __init__(
        self, compiled: Compiled, *, pruning: bool = True, aggregates: bool = True
    ) -> None:
        """Without `aggregates` no subtree is left out, so that shortages are found where they
        are; without `pruning` answers are not kept either."""
        self.compiled = compiled
        self.pruning = pruning
        self.aggregates = pruning and aggregates
        self.shortages: dict[int, Shortage] = {}
        """By the number of the level of the contents that were short."""
        self.lacking: dict[str, int] = {}
        """What nodes were refused for besides counts: how often."""
        self._job = compiled.job
        self._constraint = compiled.job.constraint
        self._by_name = self._constraint.names_nodes
        self._skips = compiled.job.skips_levels
        self.searches = Searches()
        self._answers: dict[tuple[Kind, int, bool, bool, bool], Candidates | None] = {}

    def ever(self, graph: ClusterGraph) -> bool:
        """Could it run if the cluster were empty and all of it up."""
        if self._by_name:
            return Search(self, graph, None).fits()
        if self.compiled.impossible:
            return False
        root, top = graph.root_kind, self.compiled.top
        found: Found = {}
        passes = root.type not in top.families and self.step(root, top, True) == (top, True, False)
        if self.pruning and passes and self.permits(root, top, ""):
            # The root only passes candidates up: stop when there are enough of them.
            for child, count in root.children:
                answer = self.answer(child, top, True, False, True)
                if answer is not None:
                    collect(found, child, answer, count, top)
                    if self.enough(top, found, ""):
                        return True
            return False
        collect(found, root, self.answer(root, top, True, False, True), 1, top)
        return self.enough(top, found, "")

    def enough(self, level: Level, found: Candidates, parent: str) -> bool:
        """Whether candidates suffice for the requests of a level."""
        for one in level.wanted:
            sizes = found.get(one.request.type)
            there = total(sizes) if sizes else 0
            if not one.request.count.largest(there):
                self.note(one, there, parent)
                return False
        return not level.families or all(
            self._family_suffices(level, type_, found, parent) for type_ in level.families
        )

    def _family_suffices(self, level: Level, type_: str, found: Candidates, parent: str) -> bool:
        supply, members = supply_of(found, level, type_), level.families[type_].members
        least = [Demand(number, one.request.count.minimum) for number, one in enumerate(members)]
        if can_divide(supply, least, self.searches):
            return True
        short = next(
            n for n in range(len(least)) if not can_divide(supply, least[: n + 1], self.searches)
        )
        self.note(members[short], available(supply, short), parent, beside=short > 0)
        return False

    def now(self, occupancy: Occupancy) -> bool:
        return Search(self, occupancy.graph, occupancy).fits()

    def answer(
        self, kind: Kind, level: Level, pristine: bool, exclusive: bool, ignore_status: bool
    ) -> Candidates | None:
        """For an idle subtree, by kind alone."""
        # By the kind itself: tables number theirs alike.
        key = (kind, level.number, pristine, exclusive, ignore_status)
        try:
            return self._answers[key]
        except KeyError:
            found = self._answer(kind, level, pristine, exclusive, ignore_status)
            if self.pruning:
                self._answers[key] = found
            return found

    def _answer(
        self, kind: Kind, level: Level, pristine: bool, exclusive: bool, ignore_status: bool
    ) -> Candidates | None:
        if not (ignore_status or kind.up):
            return None
        if level.families and kind.type in level.families:
            family = level.families[kind.type]
            return served(
                kind,
                (self.answer(kind, one, False, exclusive, ignore_status) for one in family.alone),
            )
        step = self.step(kind, level, pristine)
        if step is None or not self.permits(kind, level, ""):
            return None
        if self.aggregates and self.hopeless(kind.totals, kind, level):
            return None
        below, open_, slot = step
        inside = exclusive or slot or _is_exclusive(kind, level)
        found: Found = {}
        if not self.pruning:
            self._visit_each(kind, below, open_, inside, ignore_status, found)
            return self.finish(kind, level, below if slot else None, found)
        for child, count in kind.children:
            answer = self.answer(child, below, open_, inside, ignore_status)
            if answer is not None:
                collect(found, child, answer, count, below)
        return self.finish(kind, level, below if slot else None, found)

    def _visit_each(
        self,
        kind: Kind,
        level: Level,
        pristine: bool,
        exclusive: bool,
        ignore_status: bool,
        found: Found,
    ) -> None:
        """However many children are alike: for comparison."""
        for child, count in kind.children:
            for _ in range(count):
                answer = self.answer(child, level, pristine, exclusive, ignore_status)
                collect(found, child, answer, 1, level)

    def step(self, kind: Kind, level: Level, pristine: bool) -> tuple[Level, bool, bool] | None:
        """The level to visit the children with, whether they may pass, and whether slots are
        built of them."""
        wanted = level.by_type.get(kind.type)
        slot = level.slot if level.slot is not None else wanted and wanted.contents.slot
        direct = slot and slot.contents.anchors(kind.child_types)
        if slot and (direct or (self._skips and wanted is not None)):
            return slot.contents, self._skips, True
        if wanted is not None:
            return wanted.contents, self._skips, False
        return (level, True, False) if pristine else None

    def permits(self, kind: Kind, level: Level, name: str, rank: int = -1) -> bool:
        """Constraints on nodes, and what the request requires of subsystems. What has no size
        offers nothing, and nor does what lies in it."""
        if not kind.size:
            return False
        if kind.type in CONSTRAINED_TYPES and not self._constraint.accepts(
            kind.properties, name, rank
        ):
            self._lack("nodes that the constraints accept")
            return False
        wanted = level.by_type.get(kind.type)
        if wanted is not None:
            for require in wanted.request.requires:
                if not attached(kind.attachments, require):
                    self._lack(f"a {kind.type} with {require.subsystem} {describe(require)}")
                    return False
        return True

    def hopeless(self, free: Mapping[str, int], kind: Kind, level: Level) -> bool:
        """Whether too little lies below for what the level asks."""
        if level.slot is not None:
            return too_little(free, level.slot.needs)
        wanted = level.by_type.get(kind.type)
        if wanted is None:
            return level.asked.isdisjoint(kind.totals)
        return too_little(free, wanted.needs)

    def finish(
        self, kind: Kind, level: Level, slot_contents: Level | None, found: Candidates
    ) -> Candidates | None:
        if slot_contents is not None:
            number = self.slots(slot_contents, found)
            found = {SLOT: {1: number}} if number else NOTHING
        wanted = level.by_type.get(kind.type)
        if wanted is None:
            return found
        return NOTHING if self.enough(wanted.contents, found, kind.type) else None

    def slots(self, contents: Level, found: Candidates) -> int:
        """How many slots can be made of the candidates."""
        number = sum(mix(contents, found, self.searches))
        if not number:
            self._note_slot(contents, found)
        return number

    def _note_slot(self, contents: Level, found: Candidates) -> None:
        for one in contents.wanted:
            there = total(found.get(one.request.type, NOTHING_OF_IT))
            if there < one.request.count.minimum:
                self.note(one, there, SLOT)
        for type_, family in contents.families.items():
            for number, one in enumerate(family.members):
                there = available(supply_of(found, contents, type_), number)
                self.note(one, there, SLOT, beside=there >= one.request.count.minimum)

    def note(self, wanted: Wanted, found: int, parent: str, *, beside: bool = False) -> None:
        known = self.shortages.get(wanted.contents.number)
        if known is None or known.found < found:
            self.shortages[wanted.contents.number] = Shortage(wanted, found, parent, beside)

    def _lack(self, what: str) -> None:
        self.lacking[what] = self.lacking.get(what, 0) + 1

    @property
    def by_name(self) -> bool:
        return self._by_name


class Search:
    """One job on one cluster, as it is in one span of time."""

    def __init__(self, query: Query, graph: ClusterGraph, occupancy: Occupancy | None) -> None:
        self.query = query
        self.graph = graph
        self._occupancy = occupancy
        self._answers: dict[tuple[int, int, bool, bool], Candidates | None] = {}

    def fits(self) -> bool:
        found = self.roots()
        return found is not None and self.query.enough(self.query.compiled.top, found, "")

    def roots(self) -> Candidates | None:
        """All candidates for the topmost requests."""
        query = self.query
        if query.compiled.impossible:
            return None
        top, root = query.compiled.top, self.graph.root_kind
        answer = self.visit(ROOT, top, True, False)
        found: Found = {}
        collect(found, root, answer, 1, top)
        return found

    def visit(
        self, vertex: int, level: Level, pristine: bool, exclusive: bool
    ) -> Candidates | None:
        kind = self.graph.kind(vertex)
        query, occupancy = self.query, self._occupancy
        by_name = query.by_name and kind.has_nodes
        if not by_name and (occupancy is None or not occupancy.differs(vertex)):
            return query.answer(kind, level, pristine, exclusive, occupancy is None)
        key = (vertex, level.number, pristine, exclusive)
        if key not in self._answers:
            self._answers[key] = self._visit(vertex, kind, level, pristine, exclusive)
        return self._answers[key]

    def _visit(
        self, vertex: int, kind: Kind, level: Level, pristine: bool, exclusive: bool
    ) -> Candidates | None:
        query, occupancy = self.query, self._occupancy
        family = level.families.get(kind.type)
        if family is not None:
            return served(kind, (self.visit(vertex, one, False, exclusive) for one in family.alone))
        free: Mapping[str, int] = kind.totals
        inside = exclusive or _is_exclusive(kind, level)
        if occupancy is not None:
            if not occupancy.is_up(vertex) or vertex in occupancy.exclusive:
                return None
            if inside and kind.type in level.by_type and vertex in occupancy.uses:
                return None
            taken = occupancy.taken.get(vertex)
            if taken:
                free = {name: amount - taken.get(name, 0) for name, amount in free.items()}
        step = query.step(kind, level, pristine)
        if step is None:
            return None
        if not query.permits(kind, level, self.graph.name(vertex), self.graph.rank(vertex)):
            return None
        if query.aggregates and query.hopeless(free, kind, level):
            return None
        below, open_, slot = step
        found: Found = {}
        for child, answer, count in self._below(vertex, kind, below, open_, inside or slot):
            collect(found, child, answer, count, below)
        return query.finish(kind, level, below if slot else None, found)

    def _below(
        self, vertex: int, kind: Kind, level: Level, pristine: bool, exclusive: bool
    ) -> Iterator[_Child]:
        """The children that differ one by one, the others by kind."""
        graph, query, occupancy = self.graph, self.query, self._occupancy
        if query.by_name and kind.has_nodes:
            apart: set[int] | range | list[int] = list(graph.children(vertex))
        else:
            apart = occupancy.differing.get(vertex, set()) if occupancy is not None else set()
        counts = dict(kind.children)
        for child in apart:
            own = graph.kind(child)
            counts[own] -= 1
            yield own, self.visit(child, level, pristine, exclusive), 1
        idle = occupancy is None
        for own, count in counts.items():
            if count:
                yield own, query.answer(own, level, pristine, exclusive, idle), count


def _is_exclusive(kind: Kind, level: Level) -> bool:
    wanted = level.by_type.get(kind.type)
    return wanted is not None and wanted.request.exclusive is True
