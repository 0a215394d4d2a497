"""Whether the stages of a job went as their needs and policies say.

Written apart from the core: by the ends of tasks in the journal and what ran when.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mycel.core.journal import TaskEnded
from mycel.core.model.stages import Policy

from .graphs import Graph
from .history import Execution

Ends = dict[int, tuple[float, TaskEnded]]
"""By index: when it was committed, and how."""


def complaints(
    graph: Graph, ends: Ends, executions: list[Execution], job_state: str | None
) -> Iterator[str]:
    members = [
        [index for index, place in enumerate(graph.stage_of) if place == stage]
        for stage in range(len(graph.stages))
    ]
    for ran in executions:
        yield from _started_in_time(graph, members, ends, ran)
    skipped: set[int] = set()
    for place, stage in enumerate(graph.stages):
        if any(need in skipped or _failed(graph, members, ends, need) for need in stage.needs):
            skipped.add(place)
        yield from _ended_as_due(stage.name, members[place], ends, place in skipped)
    if job_state is not None and job_state != _expected(graph, ends):
        yield f"the job ended as {job_state}, not as {_expected(graph, ends)}"


def _started_in_time(
    graph: Graph, members: list[list[int]], ends: Ends, ran: Execution
) -> Iterator[str]:
    stage = graph.stages[graph.stage_of[ran.task[1]]]
    for need in stage.needs:
        for index in members[need]:
            found = ends.get(index)
            if found is None or found[0] > ran.started_at:
                yield f"{ran.task} started before task {index}, which its stage needs, had ended"
            elif found[1].state != "succeeded" and graph.stages[need].policy is Policy.FAIL:
                yield f"{ran.task} started although task {index}, which it needs, failed"
    for place, handed in zip(stage.wants, ran.handed, strict=True):
        expected = [
            msgspec.json.decode(ends[index][1].value) if ends[index][1].value else None
            for index in members[place]
        ]
        if handed != expected:
            yield f"{ran.task} was handed {handed}, not {expected}"


def _failed(graph: Graph, members: list[list[int]], ends: Ends, place: int) -> bool:
    unsuccessful = any(
        index in ends and ends[index][1].state != "succeeded" for index in members[place]
    )
    return unsuccessful and graph.stages[place].policy is Policy.FAIL


def _ended_as_due(name: str, members: list[int], ends: Ends, skipped: bool) -> Iterator[str]:
    for index in members:
        if index not in ends:
            continue  # that nothing is lost, is judged elsewhere
        ended = ends[index][1]
        if skipped and ended.state != "cancelled":
            yield f"task {index} of {name} is {ended.state}, and its stage could not run"
        if not skipped and ended.reason == "dependency_failed":
            yield f"task {index} of {name} was cancelled, and its stage could run"


def _expected(graph: Graph, ends: Ends) -> str:
    counted = {
        ended.state
        for index, (_, ended) in ends.items()
        if graph.stages[graph.stage_of[index]].policy is not Policy.IGNORE
    }
    return next((one for one in ("failed", "cancelled") if one in counted), "succeeded")
