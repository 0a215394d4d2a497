"""Why a job does not fit a graph, in words. Found by asking again, since answers are kept."""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.core.federation.graph.cluster_graph import ClusterGraph
from mycel.core.federation.graph.occupancy import Occupancy
from mycel.core.federation.graph.summary import shortfall
from mycel.core.federation.match.matcher import Query, Search, Shortage
from mycel.core.federation.match.request_levels import Compiled, compile_job
from mycel.core.federation.request.request_tree import SLOT, Request

from .reasons import Level, Reason

_ORDER: Final = tuple(Level)


def explain(
    variants: tuple[Compiled, ...], graph: ClusterGraph, occupancy: Occupancy | None = None
) -> Reason | None:
    """None if it fits. Of several variants the one that came furthest is explained."""
    reasons = []
    for compiled in variants:
        reason = _explain(compiled, graph, occupancy)
        if reason is None:
            return None
        reasons.append(reason)
    return max(reasons, key=lambda reason: _ORDER.index(reason.level))


def _explain(compiled: Compiled, graph: ClusterGraph, occupancy: Occupancy | None) -> Reason | None:
    if compiled.impossible:
        return Reason(Level.SPEC, compiled.impossible)
    query = Query(compiled, aggregates=False)
    if Search(query, graph, occupancy).fits():
        return None
    if occupancy is not None:
        never = _explain(compiled, graph, None)
        return never or Reason(Level.TIME, f"it fits, but not now: {_closest(query)}")
    missing = shortfall(compiled.needs, graph.totals())
    if missing:
        return Reason(Level.SUMMARY, missing)
    subsystem = next((what for what in query.lacking if " with " in what), None)
    if subsystem is not None and not Search(_without_requires(compiled), graph, None).fits():
        subsystem = None
    if subsystem is not None:
        return Reason(Level.SUBSYSTEM, f"there is not enough of {subsystem}")
    return Reason(Level.GRAPH, _closest(query))


def _closest(query: Query) -> str:
    """The deepest request that was short, where it came closest."""
    if query.shortages:
        # Where each alone would fit but not all together, that is the reason.
        crowded = [number for number, short in query.shortages.items() if short.beside]
        deepest = max(crowded or query.shortages)
        text = _say(query.shortages[deepest])
        if query.lacking:
            return f"{text} (also missing: {next(iter(query.lacking))})"
        return text
    if query.lacking:
        return f"missing: {next(iter(query.lacking))}"
    return "no vertex has what is asked for right below it"


def _say(short: Shortage) -> str:
    request = short.wanted.request
    least = request.count.minimum
    if request.type == SLOT:
        label = f" {request.label!r}" if request.label else ""
        where = f" in one {short.parent}" if short.parent else ""
        return f"{least} slots{label} are wanted{where}, at most {short.found} can be made"
    if short.parent == SLOT and short.beside:
        return f"a slot wants {least} {request.type} beside others of the type, {_also(short)}"
    if short.parent == SLOT:
        return f"a slot wants {least} {request.type}, at most {short.found} are in one place"
    where = f" in one {short.parent}" if short.parent else ""
    if short.beside:
        return f"{least} {request.type} are wanted{where} beside others of the type, {_also(short)}"
    return f"{least} {request.type} are wanted{where}, at most {short.found} fit"


def _also(short: Shortage) -> str:
    return f"and all {short.found} that would do are wanted twice"


def _without_requires(compiled: Compiled) -> Query:
    def bare(requests: tuple[Request, ...]) -> tuple[Request, ...]:
        return tuple(
            msgspec.structs.replace(one, requires=(), contents=bare(one.contents))
            for one in requests
        )

    job = compiled.job
    return Query(compile_job(msgspec.structs.replace(job, resources=bare(job.resources))))
