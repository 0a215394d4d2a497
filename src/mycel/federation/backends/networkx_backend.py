"""A backend on NetworkX: the graph is the library's, and every vertex is visited.

It is slow and plain. It shows that the interface asks for nothing that only our own graphs can
do, and it answers a second time for the tests. Install it with `pip install mycel[networkx]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import networkx

from mycel.core.federation.errors import GraphError
from mycel.core.federation.graph.calendar import HORIZON_SECONDS, UnknownJob
from mycel.core.federation.graph.cluster_graph import ROOT, ClusterGraph
from mycel.core.federation.graph.graph_units import in_units, units_of
from mycel.core.federation.graph.subsystems import attached
from mycel.core.federation.graph.summary import Summary, summarise
from mycel.core.federation.match.candidates import ALONE
from mycel.core.federation.match.request_levels import Compiled, Level, Wanted, compile_variants
from mycel.core.federation.match.searches import Searches
from mycel.core.federation.match.slot_building import Offer, build_slots, share_out
from mycel.core.federation.reasons import Level as RefusedAt
from mycel.core.federation.reasons import Outcome, Reason, Verdict
from mycel.core.federation.request.constraints import CONSTRAINED_TYPES
from mycel.core.federation.request.request_tree import SLOT, JobRequest
from mycel.federation.jgf import read_graph, read_subsystem

from .graph_backend import UnknownCluster

Found = dict[str, list[Any]]
"""Candidates by type: offers of vertices, or slots of them."""
Picked = list[tuple[int, Wanted]]
"""Vertices, and what they are for."""


class _Kept:
    def __init__(self, source: ClusterGraph) -> None:
        self.source = source
        self.graph = networkx.DiGraph()
        for vertex in range(len(source)):
            kind = source.kind(vertex)
            self.graph.add_node(
                vertex,
                type=kind.type,
                size=kind.size,
                up=kind.up,
                properties=kind.properties,
                name=source.name(vertex),
                rank=source.rank(vertex),
                attached={},
            )
            if vertex != ROOT:
                self.graph.add_edge(source.parent(vertex), vertex)
        self.holds: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        """Start, end and what is held."""

    def variants(self, job: JobRequest) -> tuple[Compiled, ...]:
        return compile_variants(in_units(job, units_of(self.source)))


class NetworkxBackend:
    def __init__(self, whole: frozenset[str] = frozenset()) -> None:
        self._whole = whole
        self._kept: dict[str, _Kept] = {}

    def put(self, cluster: str, data: bytes) -> Summary:
        graph = read_graph(data, name=cluster)
        self._kept[cluster] = _Kept(graph)
        return summarise(graph)

    def remove(self, cluster: str) -> None:
        self._kept.pop(cluster, None)

    def attach(self, cluster: str, subsystem: str, data: bytes) -> None:
        kept = self._of(cluster)
        found = read_subsystem(data, subsystem, kept.source, name=subsystem)
        for vertex, node in kept.graph.nodes.items():
            node["attached"][subsystem] = found.get(vertex, ())

    def detach(self, cluster: str, subsystem: str) -> None:
        for node in self._of(cluster).graph.nodes.values():
            node["attached"].pop(subsystem, None)

    def summary(self, cluster: str) -> Summary:
        return summarise(self._of(cluster).source)

    def satisfy(self, cluster: str, job: JobRequest) -> Verdict:
        kept = self._of(cluster)
        variants = kept.variants(job)
        if job.duration_seconds <= HORIZON_SECONDS and any(
            _Walk(kept, one, (), check_status=False).place() is not None for one in variants
        ):
            return Verdict(Outcome.SATISFIABLE)
        impossible = variants[0].impossible
        level = RefusedAt.SPEC if impossible else RefusedAt.GRAPH
        reason = Reason(level, impossible or "no part of the graph fits")
        return Verdict(Outcome.UNSATISFIABLE, reason=reason)

    def allocate(self, cluster: str, name: str, job: JobRequest, now: int) -> Verdict:
        kept = self._of(cluster)
        _check_new(kept, name)
        return self._take(kept, name, job, now, now) or _refused()

    def reserve(self, cluster: str, name: str, job: JobRequest, now: int) -> Verdict:
        kept = self._of(cluster)
        _check_new(kept, name)
        ends = sorted({end for _, end, _ in kept.holds.values() if end > now})
        for start in (now, *ends):
            verdict = self._take(kept, name, job, start, now)
            if verdict is not None:
                return verdict
        never = self.satisfy(cluster, job)
        return _refused() if never or not _has_nodes_up(kept, job) else never

    def cancel(self, cluster: str, name: str) -> None:
        if self._of(cluster).holds.pop(name, None) is None:
            raise UnknownJob(f"there is no job {name!r} in the calendar")

    def set_status(self, cluster: str, path: str, up: bool) -> None:
        kept = self._of(cluster)
        vertex = kept.source.find(path)
        if vertex is None:
            raise GraphError(cluster, f"there is no vertex at {path!r}")
        kept.graph.nodes[vertex]["up"] = up

    def _take(
        self, kept: _Kept, name: str, job: JobRequest, start: int, now: int
    ) -> Verdict | None:
        end = start + (job.duration_seconds or HORIZON_SECONDS)
        long = job.duration_seconds > HORIZON_SECONDS
        if long or (start > now and end > HORIZON_SECONDS):
            return None
        held = [
            vertex
            for begin, until, vertices in kept.holds.values()
            if (begin < end and start < until) or (start == now and begin <= now and until <= now)
            for vertex in vertices
        ]
        walks = (
            _Walk(kept, one, held, check_status=True, whole=self._whole)
            for one in kept.variants(job)
        )
        placed = (walk.place() for walk in walks)
        found = next((one for one in placed if one is not None), None)
        if found is None:
            return None
        kept.holds[name] = (start, end, found)
        outcome = Outcome.RESERVED if start > now else Outcome.ALLOCATED
        return Verdict(outcome, at_seconds=start, vertices=found)

    def _of(self, cluster: str) -> _Kept:
        kept = self._kept.get(cluster)
        if kept is None:
            raise UnknownCluster(f"there is no graph of a cluster {cluster!r}")
        return kept


def _has_nodes_up(kept: _Kept, job: JobRequest) -> bool:
    up = [
        node
        for node in kept.graph.nodes.values()
        if node["type"] == "node"
        and node["up"]
        and job.constraint.accepts(node["properties"], node["name"], node["rank"])
    ]
    return any(len(up) >= one.needs.get("node", 0) for one in compile_variants(job))


def _check_new(kept: _Kept, name: str) -> None:
    if name in kept.holds:
        raise UnknownJob(f"job {name!r} is in the calendar already")


def _refused() -> Verdict:
    reason = Reason(RefusedAt.TIME, "no part of the graph fits now")
    return Verdict(Outcome.NO_MATCH, reason=reason)


class _Walk:
    """One job on one graph: every vertex is visited, and candidates are the vertices."""

    def __init__(
        self,
        kept: _Kept,
        compiled: Compiled,
        held: Iterable[int],
        *,
        check_status: bool,
        whole: frozenset[str] = frozenset(),
    ) -> None:
        self._whole = whole
        self._searches = Searches()
        self._graph = kept.graph
        self._compiled = compiled
        self._held = frozenset(held)
        self._used = frozenset(
            above for vertex in self._held for above in (vertex, *kept.source.ancestors(vertex))
        )
        self._check_status = check_status
        self._chosen: dict[tuple[int, int], Picked] = {}
        """By vertex and request (the number of its contents)."""

    def place(self) -> tuple[int, ...] | None:
        """What the job would hold, topmost vertices alone; None if it does not fit."""
        if self._compiled.impossible:
            return None
        top = self._compiled.top
        found: Found = {}
        self._explore([ROOT], top, True, False, (), found)
        picked = self._pick(top, found)
        if picked is None:
            return None
        taken: set[int] = set()
        self._take(top, picked, False, taken)
        return tuple(
            vertex
            for vertex in sorted(taken)
            if not taken & networkx.ancestors(self._graph, vertex)
        )

    def _visit(
        self, vertex: int, level: Level, pristine: bool, exclusive: bool, above: tuple[Any, ...]
    ) -> Found | None:
        node = self._graph.nodes[vertex]
        wanted = level.by_type.get(node["type"])
        having = above + tuple(one for those in node["attached"].values() for one in those)
        inside = exclusive or (wanted is not None and wanted.request.exclusive is True)
        if not self._permits(vertex, node, wanted, inside, having):
            return None
        children = list(self._graph.successors(vertex))
        skips = self._compiled.job.skips_levels
        slot = level.slot if level.slot is not None else wanted and wanted.contents.slot
        found: Found = {}
        if slot and (self._anchors(children, slot) or (skips and wanted is not None)):
            self._explore(children, slot.contents, skips, True, having, found)
            found = {SLOT: build_slots(slot.contents, found, self._searches)}
        elif wanted is not None:
            self._explore(children, wanted.contents, skips, inside, having, found)
        elif pristine:
            self._explore(children, level, True, inside, having, found)
            return found
        else:
            return None
        if wanted is None:
            return found
        picked = self._pick(wanted.contents, found)
        if picked is None:
            return None
        self._chosen[vertex, wanted.contents.number] = picked
        return {}

    def _permits(
        self, vertex: int, node: Any, wanted: Wanted | None, inside: bool, having: tuple[Any, ...]
    ) -> bool:
        down = self._check_status and not node["up"]
        if down or not node["size"] or vertex in self._held:
            return False
        if node["type"] in CONSTRAINED_TYPES and not self._compiled.job.constraint.accepts(
            node["properties"], node["name"], node["rank"]
        ):
            return False
        if wanted is None:
            return True
        if inside and vertex in self._used:
            return False
        return all(attached(having, require) for require in wanted.request.requires)

    def _anchors(self, children: list[int], slot: Wanted) -> bool:
        return slot.contents.anchors({self._graph.nodes[child]["type"] for child in children})

    def _explore(
        self,
        children: list[int],
        level: Level,
        pristine: bool,
        exclusive: bool,
        above: tuple[Any, ...],
        found: Found,
    ) -> None:
        for child in children:
            family = level.families.get(self._graph.nodes[child]["type"])
            if family is not None:
                answers = [self._visit(child, one, False, exclusive, above) for one in family.alone]
                able = frozenset(n for n, answer in enumerate(answers) if answer is not None)
                if able:
                    self._offer(child, able, found)
                continue
            offered = self._visit(child, level, pristine, exclusive, above)
            if offered is None:
                continue
            if self._graph.nodes[child]["type"] in level.types:
                self._offer(child, ALONE, found)
            for name, those in offered.items():
                found.setdefault(name, []).extend(those)

    def _offer(self, vertex: int, able: frozenset[int], found: Found) -> None:
        node = self._graph.nodes[vertex]
        offer = Offer(able, int(node["size"]), vertex)
        found.setdefault(node["type"], []).append(offer)

    def _pick(self, level: Level, found: Found) -> Picked | None:
        """What is taken for the requests of a level; None if one of them is short."""
        if level.slot is not None:
            slots = found.get(SLOT, [])
            number = level.slot.request.count.largest(len(slots))
            return [pair for slot in slots[:number] for pair in slot] if number else None
        picked: Picked = []
        for type_, wanted in level.by_type.items():
            offered = found.get(type_, [])
            left = wanted.request.count.largest(sum(one.size for one in offered))
            if not left:
                return None
            for one in offered:
                if left <= 0:
                    break
                picked.append((one.item, wanted))
                left -= one.size
        for type_, family in level.families.items():
            shared = share_out(level, type_, found.get(type_, []), self._searches)
            if not shared:
                return None
            for wanted, vertices in zip(family.members, shared, strict=True):
                picked += [(vertex, wanted) for vertex in vertices]
        return picked

    def _widened(self, vertex: int) -> list[int]:
        """The vertices that are never shared which a vertex lies in, or is."""
        if not self._whole:
            return []
        above = (vertex, *networkx.ancestors(self._graph, vertex))
        return [one for one in above if self._graph.nodes[one]["type"] in self._whole]

    def _take(self, level: Level, picked: Picked, exclusive: bool, taken: set[int]) -> None:
        for vertex, wanted in picked:
            inside = exclusive or level.slot is not None or wanted.request.exclusive is True
            if inside:
                taken.add(vertex)
            taken.update(self._widened(vertex))
            below = self._chosen.get((vertex, wanted.contents.number), [])
            self._take(wanted.contents, below, inside, taken)
