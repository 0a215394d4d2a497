"""Mycel's own way to ask for several nodes, converted to a request tree.

nodes = "2-4"          a count or a range
tasks_per_node = 2     each in a slot of its own
exclusive = true       whole nodes, whatever the tasks take of them
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from mycel.core.federation.errors import SpecError
from mycel.core.model.resources import Requirements

from .constraints import EVERYWHERE, Constraint, both, properties
from .counts import Count, exactly
from .request_tree import SLOT, JobRequest, Request, Require

MEMORY_UNIT: Final = "MB"
MEMORY_UNIT_BYTES: Final = 10**6


class SeveralNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Validated. The scheduler of workers knows nothing of it; clusters do."""

    nodes: Count = Count(1, 1)
    tasks_per_node: Count = Count(1, 1)
    exclusive: bool = False
    requirements: Requirements = Requirements()
    """Of one task."""
    time_limit_seconds: int = 0
    constraint: Constraint = EVERYWHERE


def request_of(several: SeveralNodes) -> tuple[tuple[Request, ...], Constraint]:
    """Raises SpecError for what no cluster's graph can say."""
    needs = several.requirements
    if needs.custom or needs.disk:
        raise SpecError("requirements", "clusters know no disk and no custom amounts")
    contents = [Request("core", exactly(max(1, math.ceil(needs.cpu_cores))))]
    if needs.gpus is not None:
        contents.append(Request("gpu", exactly(max(1, math.ceil(needs.gpus.count)))))
    if needs.min_memory:
        megabytes = -(-needs.min_memory // MEMORY_UNIT_BYTES)
        contents.append(Request("memory", exactly(megabytes), unit=MEMORY_UNIT))
    slot = Request(SLOT, several.tasks_per_node, tuple(contents), label="task")
    exclusive = True if several.exclusive else None
    software = tuple(Require("software", name, versions=range_) for name, range_ in needs.software)
    node = Request("node", several.nodes, (slot,), exclusive, requires=software)
    wanted = [f"{key}={value}" if value else key for key, value in needs.labels]
    wanted += [f"{key}={value}" for key, value in (("arch", needs.arch), ("os", needs.os)) if value]
    constraint = several.constraint
    if wanted:
        constraint = both(constraint, properties(*wanted))
    return (node,), constraint


def job_of(several: SeveralNodes, *, original: str = "", dialect: str = "mycel") -> JobRequest:
    resources, constraint = request_of(several)
    return JobRequest(
        resources=resources,
        duration_seconds=several.time_limit_seconds,
        constraint=constraint,
        skips_levels=True,
        dialect=dialect,
        original=original,
    )
