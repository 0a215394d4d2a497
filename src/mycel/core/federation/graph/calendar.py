"""When a cluster's resources are held, and by which job.

    allocate   now, or not at all
    reserve    now, or at the first time at which it fits
    cancel     frees what a job holds, allocated or reserved
    satisfy    whether it could ever run, whatever is held and whatever is down

A job's start can only become possible when another one ends, so the ends are tried in turn.
Time is in seconds; the caller passes it.
"""

from __future__ import annotations

import bisect
from typing import Final

import msgspec

from mycel.core.federation.errors import FederationError
from mycel.core.federation.match.matcher import Query, Search
from mycel.core.federation.match.placement import Placement, place
from mycel.core.federation.match.request_levels import Compiled, compile_variants
from mycel.core.federation.mismatch import explain
from mycel.core.federation.reasons import Level, Outcome, Reason, Verdict
from mycel.core.federation.request.request_tree import JobRequest

from .cluster_graph import ClusterGraph
from .graph_units import in_units, units_of
from .occupancy import Occupancy

HORIZON_SECONDS: Final = 100 * 365 * 86_400
"""Calendars end somewhere. A job without a time limit holds its vertices until then."""

Variants = tuple[Compiled, ...]


class Hold(msgspec.Struct, frozen=True):
    start: int
    end: int
    vertices: tuple[int, ...]
    reserved: bool


class UnknownJob(FederationError):
    """There is no such job in the calendar, or there is one already."""


class Calendar:
    def __init__(
        self,
        graph: ClusterGraph,
        *,
        horizon_seconds: int = HORIZON_SECONDS,
        whole: frozenset[str] = frozenset(),
    ) -> None:
        """Jobs get vertices of the types in `whole` alone or not at all: many clusters give out
        whole nodes only."""
        self.graph = graph
        self._whole = whole
        self.holds: dict[str, Hold] = {}
        self._horizon = horizon_seconds
        self._occupancy = Occupancy(graph)
        self._counted: set[str] = set()
        """Jobs whose vertices `_occupancy` counts just now."""
        self._ends: list[int] = []

    def satisfy(self, job: JobRequest) -> Verdict:
        reason = self._too_long(job) or explain(self._compiled(job), self.graph)
        if reason is None:
            return Verdict(Outcome.SATISFIABLE)
        return Verdict(Outcome.UNSATISFIABLE, reason=reason)

    def allocate(self, name: str, job: JobRequest, now: int) -> Verdict:
        self._check_new(name)
        compiled = self._compiled(job)
        return self._take(name, compiled, now, now) or self._refusal(compiled, now)

    def allocate_or_say_never(self, name: str, job: JobRequest, now: int) -> Verdict:
        """Like `allocate`, but tells "not now" from "never"."""
        verdict = self.allocate(name, job, now)
        if not verdict:
            never = self.satisfy(job)
            return verdict if never else never
        return verdict

    def reserve(self, name: str, job: JobRequest, now: int) -> Verdict:
        self._check_new(name)
        compiled = self._compiled(job)
        for start in (now, *self._ends[bisect.bisect_right(self._ends, now) :]):
            verdict = self._take(name, compiled, start, now)
            if verdict:
                return verdict
        if any(self._has_nodes_up(one) for one in compiled):
            never = self.satisfy(job)
            if not never:
                return never
        return self._refusal(compiled, now)

    def cancel(self, name: str) -> None:
        hold = self.holds.pop(name, None)
        if hold is None:
            raise UnknownJob(f"there is no job {name!r} in the calendar")
        if name in self._counted:
            self._counted.discard(name)
            self._occupancy.release(hold.vertices)
        if not any(other.end == hold.end for other in self.holds.values()):
            self._ends.remove(hold.end)

    def replace_graph(self, graph: ClusterGraph) -> None:
        """By one with the same vertices, attached to other things. Jobs keep what they hold."""
        assert len(graph) == len(self.graph), "the same vertices"
        status = self._occupancy.status
        self.graph = graph
        self._occupancy = Occupancy(graph)
        self._counted = set()
        for vertex, up in status.items():
            self._occupancy.set_status(vertex, up)

    def set_status(self, vertex: int, up: bool) -> None:
        self._occupancy.set_status(vertex, up)

    def during(self, start: int, end: int, now: int) -> Occupancy:
        """What is held at any time in the span; valid until the next call.

        A job that runs past its end still has its vertices: at `now` it counts until cancelled.
        """
        wanted = {
            name
            for name, hold in self.holds.items()
            if (hold.start < end and start < hold.end)
            or (start == now and not hold.reserved and hold.end <= now)
        }
        for name in self._counted - wanted:
            self._occupancy.release(self.holds[name].vertices)
        for name in wanted - self._counted:
            self._occupancy.hold(self.holds[name].vertices)
        self._counted = wanted
        return self._occupancy

    def _compiled(self, job: JobRequest) -> Variants:
        return compile_variants(in_units(job, units_of(self.graph)))

    def _take(self, name: str, variants: Variants, start: int, now: int) -> Verdict | None:
        job = variants[0].job
        end = start + (job.duration_seconds or self._horizon)
        if self._too_long(job) or (start > now and end > self._horizon):
            return None
        tried = (self._find(compiled, start, end, now) for compiled in variants)
        found = next(filter(None, tried), None)
        if found is None:
            return None
        vertices = found.topmost(self.graph)
        self.holds[name] = Hold(start, end, vertices, start > now)
        if end not in self._ends:
            bisect.insort(self._ends, end)
        outcome = Outcome.RESERVED if start > now else Outcome.ALLOCATED
        takes = found.takes(self.graph)
        return Verdict(outcome, at_seconds=start, takes=takes, vertices=vertices)

    def _find(self, compiled: Compiled, start: int, end: int, now: int) -> Placement | None:
        occupancy = self.during(start, end, now)
        return place(Search(Query(compiled), self.graph, occupancy), self._whole)

    def _refusal(self, variants: Variants, now: int) -> Verdict:
        job = variants[0].job
        end = now + (job.duration_seconds or self._horizon)
        reason = self._too_long(job)
        reason = reason or explain(variants, self.graph, self.during(now, end, now))
        if reason is None:
            reason = Reason(Level.TIME, "the cluster's calendar ends before the job would")
        return Verdict(Outcome.NO_MATCH, reason=reason)

    def _too_long(self, job: JobRequest) -> Reason | None:
        if job.duration_seconds <= self._horizon:
            return None
        return Reason(Level.TIME, f"the calendar ends after {self._horizon} s")

    def _has_nodes_up(self, compiled: Compiled) -> bool:
        """Whether enough nodes are up and accepted. Without them Fluxion looks no further: a
        reservation is then a no-match, not unsatisfiable, since nodes may come up."""
        wanted = compiled.needs.get("node", 0)
        if wanted <= 0:
            return True
        constraint, graph, there = compiled.job.constraint, self.graph, 0
        if self.graph.totals().get("node", 0) < wanted:
            return False
        for vertex in range(len(graph)):
            kind = graph.kind(vertex)
            if kind.type != "node":
                continue
            if self._occupancy.is_up(vertex) and constraint.accepts(
                kind.properties, graph.name(vertex), graph.rank(vertex)
            ):
                there += 1
                if there >= wanted:
                    return True
        return False

    def _check_new(self, name: str) -> None:
        if name in self.holds:
            raise UnknownJob(f"job {name!r} is in the calendar already")
