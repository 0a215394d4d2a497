"""Why a job does not fit a graph, in words. Found by asking again, since answers are kept."""

from __future__ import annotations

from mycel.core.federation.graph.cluster_graph import ClusterGraph
from mycel.core.federation.graph.occupancy import Occupancy
from mycel.core.federation.graph.summary import shortfall
from mycel.core.federation.match.matcher import Query, Search, Shortage
from mycel.core.federation.match.request_levels import Compiled
from mycel.core.federation.request.request_tree import SLOT

from .reasons import Level, Reason


def explain(
    compiled: Compiled, graph: ClusterGraph, occupancy: Occupancy | None = None
) -> Reason | None:
    """None if it fits."""
    if compiled.impossible:
        return Reason(Level.SPEC, compiled.impossible)
    query = Query(compiled, aggregates=False)
    if Search(query, graph, occupancy).fits():
        return None
    if occupancy is not None:
        never = explain(compiled, graph)
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
        deepest = max(query.shortages)
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
    if short.parent == SLOT:
        return f"a slot wants {least} {request.type}, at most {short.found} are in one place"
    where = f" in one {short.parent}" if short.parent else ""
    return f"{least} {request.type} are wanted{where}, at most {short.found} fit"


def _without_requires(compiled: Compiled) -> Query:
    from mycel.core.federation.match.request_levels import compile_job
    from mycel.core.federation.request.request_tree import JobRequest, Request

    def bare(requests: tuple[Request, ...]) -> tuple[Request, ...]:
        return tuple(
            Request(
                one.type,
                one.count,
                bare(one.contents),
                one.exclusive,
                one.label,
                one.unit,
                one.identifiers,
            )
            for one in requests
        )

    job = compiled.job
    plain = JobRequest(
        resources=bare(job.resources), constraint=job.constraint, skips_levels=job.skips_levels
    )
    return Query(compile_job(plain))
