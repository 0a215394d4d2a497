"""Which clusters could run a job, level by level, and which one gets it.

    tokens ─ summary ─ graph and subsystems ─ answers (if asked) ─ selection
      │         │              │                   │
      └─────────┴── refused, with level and reason ┘

Each level is cheaper than the next and rules out most of what it can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from mycel.core.federation.graph.cluster_graph import ClusterGraph
from mycel.core.federation.graph.graph_units import has_units, in_units, units_of
from mycel.core.federation.graph.summary import Summary, lacks, summarise
from mycel.core.federation.match.matcher import Query
from mycel.core.federation.match.request_levels import compile_variants
from mycel.core.federation.request.request_tree import JobRequest
from mycel.core.ranges import Amount

from .cluster_selection import COST, ETA, Choice, Draw, Option, Selector
from .expressions import Value
from .mismatch import explain
from .reasons import Level, Reason

PRICE: Final = "cost_per_node_hour"
HOUR_SECONDS: Final = 3600
_COUNTED: Final = {"core": "cores", "gpu": "gpus", "memory": "memory"}


class Cluster(msgspec.Struct, frozen=True):
    name: str
    graph: ClusterGraph
    summary: Summary
    state: dict[str, Value] = {}
    units: dict[str, str] = {}


class Answer(msgspec.Struct, frozen=True):
    """What a cluster says when it is asked. None of it binds it."""

    cluster: str
    accepts: bool
    eta_seconds: Amount = 0.0
    cost: Amount = 0.0
    eta_from: str = ""
    """`test-only`, `queue`, `history`"""
    reason: str = ""


class Matches:
    """Clusters that fit, and at which level the others were ruled out."""

    def __init__(
        self, job: JobRequest, fitting: list[Cluster], refused: dict[str, Level | Reason]
    ) -> None:
        self.job = job
        self.fitting = fitting
        self._refused = refused

    def reasons(self, clusters: Mapping[str, Cluster]) -> dict[str, Reason]:
        """In words. They take longer than the decision, so they are found when asked for."""
        found = {}
        for name, level in self._refused.items():
            if isinstance(level, Reason):
                found[name] = level
                continue
            graph = clusters[name].graph
            job = in_units(self.job, clusters[name].units)
            reason = explain(compile_variants(job), graph)
            # Asking again visits more, so it may find what a search has given up.
            found[name] = reason or Reason(Level.GRAPH, "the search for a packing was given up")
        return found


class Decision(msgspec.Struct, frozen=True):
    cluster: str = ""
    """Empty if the job is rejected."""
    reason: str = ""
    refused: dict[str, Reason] = {}


class _Variants:
    """The queries of one job: a job that leaves a choice open has several."""

    def __init__(self, job: JobRequest, pruning: bool) -> None:
        compiled = compile_variants(job)
        possible = [one for one in compiled if not one.impossible]
        self._queries = [Query(one, pruning=pruning) for one in possible]
        self._impossible = None if possible else Reason(Level.SPEC, compiled[0].impossible)
        self._pruning = pruning

    def rule_out(self, cluster: Cluster) -> Level | Reason | None:
        """At which level the cluster drops out; None if it fits."""
        level = Level.SUMMARY
        summary = cluster.summary
        for query in self._queries:
            wanted = query.compiled
            if self._pruning and (
                lacks(wanted.needs, summary.totals) or lacks(wanted.together, summary.most)
            ):
                continue
            if query.ever(cluster.graph):
                return None
            level = Level.GRAPH
        return self._impossible or level


class ClusterTable:
    """The clusters that are known. Their graphs share one table of kinds."""

    def __init__(self) -> None:
        self._clusters: dict[str, Cluster] = {}

    def put(
        self, name: str, graph: ClusterGraph, state: Mapping[str, Value] | None = None
    ) -> Cluster:
        cluster = Cluster(name, graph, summarise(graph), dict(state or {}), units_of(graph))
        self._clusters[name] = cluster
        return cluster

    def remove(self, name: str) -> None:
        self._clusters.pop(name, None)

    @property
    def clusters(self) -> Mapping[str, Cluster]:
        return self._clusters

    def match(
        self,
        job: JobRequest,
        tokens: Mapping[str, Reason | None] | None = None,
        *,
        pruning: bool = True,
    ) -> Matches:
        """`tokens` has each cluster that the user named: None if the token is good. Without it
        all clusters are open."""
        refused: dict[str, Level | Reason] = {}
        fitting: list[Cluster] = []
        convert = has_units(job)
        known: dict[tuple[tuple[str, str], ...], _Variants] = {}
        queries = None if convert else _Variants(job, pruning)
        for cluster in self._open(tokens, refused):
            if convert:
                key = tuple(cluster.units.items())
                queries = known.get(key)
                if queries is None:
                    queries = known[key] = _Variants(in_units(job, cluster.units), pruning)
            assert queries is not None
            level = queries.rule_out(cluster)
            if level is None:
                fitting.append(cluster)
            else:
                refused[cluster.name] = level
        return Matches(job, fitting, refused)

    def _open(
        self, tokens: Mapping[str, Reason | None] | None, refused: dict[str, Level | Reason]
    ) -> Iterable[Cluster]:
        if tokens is None:
            return self._clusters.values()
        found = []
        for name, problem in tokens.items():
            cluster = self._clusters.get(name)
            if problem is not None:
                refused[name] = problem
            elif cluster is None:
                refused[name] = Reason(Level.TOKEN, "no cluster of this name is registered")
            else:
                found.append(cluster)
        return found


def decide(
    table: ClusterTable,
    matches: Matches,
    select: Selector,
    draw: Draw,
    *,
    job: Mapping[str, Value] | None = None,
    answers: Mapping[str, Answer] | None = None,
    explain_others: bool = False,
) -> Decision:
    """Level 1 without answers, level 2 with them: then a cluster that did not answer in time is
    out. The job is assigned, or rejected with each cluster's reason. Reasons take longer than the
    decision: if it is assigned, they are found only for who asks to `explain_others`."""
    options: list[Option] = []
    late: dict[str, Reason] = {}
    for cluster in matches.fitting:
        attributes = with_cost(cluster.state, job or {})
        if answers is not None:
            answer = answers.get(cluster.name)
            if answer is None or not answer.accepts:
                words = "did not answer in time" if answer is None else answer.reason or "said no"
                late[cluster.name] = Reason(Level.ANSWER, words)
                continue
            attributes[ETA], attributes[COST] = answer.eta_seconds, answer.cost
        options.append(Option(cluster.name, attributes))
    choice = select(options, job or {}, draw) if options else Choice(reason="no cluster fits")
    if choice.name and not explain_others:
        return Decision(choice.name, choice.reason)
    passed = {
        option.name: Reason(Level.SELECTION, f"it fits, and {choice.name} was preferred")
        for option in options
        if choice.name and option.name != choice.name
    }
    for name, text in choice.dropped.items():
        passed[name] = Reason(Level.SELECTION, text)
    refused = {**matches.reasons(table.clusters), **late, **passed}
    return Decision(choice.name, choice.reason, refused)


def job_values(job: JobRequest) -> dict[str, Value]:
    """What selection steps can read of a job: the least that it takes."""
    needs = compile_variants(job)[0].needs
    values: dict[str, Value] = {plural: needs.get(type_, 0) for type_, plural in _COUNTED.items()}
    values["nodes"] = needs.get("node", 1)
    values["duration_seconds"] = job.duration_seconds
    values["name"] = job.name
    return values


def with_cost(state: Mapping[str, Value], job: Mapping[str, Value]) -> dict[str, Value]:
    """A cluster that says what a node costs in an hour says what a job costs. A job without a
    time limit counts as one of an hour."""
    attributes = dict(state)
    price, nodes = state.get(PRICE), job.get("nodes")
    if COST not in attributes and isinstance(price, (int, float)) and isinstance(nodes, int):
        seconds = job.get("duration_seconds") or HOUR_SECONDS
        attributes[COST] = price * nodes * float(seconds) / HOUR_SECONDS
    return attributes
