"""Mycel's own job files, as far as they ask for nodes of a cluster.

nodes = "2-4"
tasks_per_node = 2
exclusive = true
time_limit = 600

[task]
command = ["./train"]
requirements = { cpu_cores = 4, min_memory = "8GB", gpus = 1 }

[compatibility]                     # or: annotations = { … }
"mpi.variant" = "mpich"
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from mycel.config.sizes import BadSize, parse_size
from mycel.core.federation.request.constraints import EVERYWHERE, parse_constraint
from mycel.core.federation.request.counts import Count, exactly
from mycel.core.federation.request.request_tree import JobRequest, Request, Require
from mycel.core.federation.request.several_nodes import SeveralNodes, job_of
from mycel.core.matching.version_ranges import is_version_range
from mycel.core.model.resources import GpuRequirement, Requirements

from .compatibility import read_compatibility
from .documents import Document, Keys
from .request_reader import read_count

DIALECT: Final = "mycel"
AMOUNT_MAX: Final = 1e6
_TOP: Final = frozenset(
    (
        "name",
        "nodes",
        "tasks_per_node",
        "exclusive",
        "time_limit",
        "task",
        "constraints",
        "compatibility",
    )
)
_REQUIREMENTS: Final = frozenset(
    ("cpu_cores", "min_memory", "gpus", "gpu_required", "labels", "arch", "os", "software")
)


def read_several_nodes(document: Document) -> SeveralNodes:
    """Raises SpecError."""
    top = document.table(document.value, (), _TOP)
    task = top.get("task", {})
    if not isinstance(task, dict):
        raise document.wrong(("task",), "must be a table")
    constraint = EVERYWHERE
    if "constraints" in top:
        constraint = parse_constraint(top["constraints"], document.place(("constraints",)))
    limit = document.seconds(top.get("time_limit", task.get("timeout", 0)), ("time_limit",))
    return SeveralNodes(
        nodes=_count(document, top, "nodes"),
        tasks_per_node=_count(document, top, "tasks_per_node"),
        exclusive=document.boolean(top.get("exclusive", False), ("exclusive",)),
        requirements=_requirements(document, task.get("requirements", {})),
        time_limit_seconds=math.ceil(limit),
        constraint=constraint,
    )


def read_mycel(document: Document) -> JobRequest:
    """Raises SpecError."""
    several = read_several_nodes(document)
    job = job_of(several, original=document.text, dialect=DIALECT)
    top, task = document.value, document.value.get("task", {})
    needed: tuple[Require, ...] = ()
    for table, path in ((top, ("compatibility",)), (task, ("task", "compatibility"))):
        if "compatibility" in table:
            needed += read_compatibility(table["compatibility"], document.place(path))
    node = job.resources[0]
    resources: tuple[Request, ...] = (
        msgspec.structs.replace(node, requires=node.requires + needed),
    )
    command = task.get("command", ())
    words = (command,) if isinstance(command, str) else tuple(str(word) for word in command)
    name = document.string(top.get("name", ""), ("name",))
    return msgspec.structs.replace(
        job, resources=resources, name=name, tasks=(words,), attributes=dict(task)
    )


def _count(document: Document, top: dict[str, Any], key: str) -> Count:
    return read_count(document, top[key], (key,)) if key in top else exactly(1)


def _requirements(document: Document, value: Any) -> Requirements:
    path: Keys = ("task", "requirements")
    table = document.table(value, path, _REQUIREMENTS)
    memory = 0
    if "min_memory" in table:
        try:
            memory = parse_size(table["min_memory"])
        except BadSize as error:
            raise document.wrong((*path, "min_memory"), str(error)) from None
    software = _pairs(document, table, (*path, "software"))
    for name, versions in software:
        if not is_version_range(versions):
            raise document.wrong((*path, "software", name), f"{versions!r} is no version range")
    return Requirements(
        cpu_cores=_amount(document, table.get("cpu_cores", 0), (*path, "cpu_cores")),
        min_memory=memory,
        gpus=_gpus(document, table, path),
        labels=_pairs(document, table, (*path, "labels")),
        arch=document.string(table.get("arch", ""), (*path, "arch")),
        os=document.string(table.get("os", ""), (*path, "os")),
        software=software,
    )


def _gpus(document: Document, table: dict[str, Any], path: Keys) -> GpuRequirement | None:
    value = table.get("gpus")
    if isinstance(value, dict):
        value = document.table(value, (*path, "gpus"), frozenset(("count",))).get("count", 1)
    if value is None:
        required = document.boolean(table.get("gpu_required", False), (*path, "gpu_required"))
        return GpuRequirement() if required else None
    amount = _amount(document, value, (*path, "gpus"))
    return GpuRequirement(amount) if amount else None


def _amount(document: Document, value: Any, path: Keys) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise document.wrong(path, "must be a number")
    if not 0 <= value <= AMOUNT_MAX:
        raise document.wrong(path, f"{value} is not between 0 and {AMOUNT_MAX:.0f}")
    return float(value)


def _pairs(document: Document, table: dict[str, Any], path: Keys) -> tuple[tuple[str, str], ...]:
    value = table.get(path[-1], {})
    if not isinstance(value, dict):
        raise document.wrong(path, "must be a table")
    return tuple((key, document.string(one, (*path, key))) for key, one in value.items())
