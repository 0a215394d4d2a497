"""Requests in the units of a graph: one counts memory in MB, another in GB or GiB.

Only formats that promise it are converted (rainbow's and Mycel's). Flux's counts are in the
graph's own unit, whatever `unit` says: Fluxion does not look at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from mycel.core.federation.request.counts import UNLIMITED, Count
from mycel.core.federation.request.request_tree import JobRequest, Request, walk

from .cluster_graph import ClusterGraph

BYTES: Final[Mapping[str, int]] = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}


def has_units(job: JobRequest) -> bool:
    return job.skips_levels and any(one.unit in BYTES for one in walk(job.resources))


def units_of(graph: ClusterGraph) -> dict[str, str]:
    """The unit of each type that has one, and only one."""
    found: dict[str, set[str]] = {}
    for kind in graph.kinds:
        if kind.unit in BYTES:
            found.setdefault(kind.type, set()).add(kind.unit)
    return {name: next(iter(units)) for name, units in found.items() if len(units) == 1}


def in_units(job: JobRequest, units: Mapping[str, str]) -> JobRequest:
    if not has_units(job):
        return job
    resources = tuple(_converted(one, units) for one in job.resources)
    return msgspec.structs.replace(job, resources=resources)


def _converted(request: Request, units: Mapping[str, str]) -> Request:
    contents = tuple(_converted(one, units) for one in request.contents)
    there = units.get(request.type, "")
    if request.unit not in BYTES or not there or there == request.unit:
        return msgspec.structs.replace(request, contents=contents)
    asked, given = BYTES[request.unit], BYTES[there]
    count = request.count
    minimum = -(-count.minimum * asked // given)
    maximum = UNLIMITED
    if count.maximum < UNLIMITED:
        maximum = max(minimum, count.maximum * asked // given)
    return msgspec.structs.replace(
        request, contents=contents, count=Count(minimum, maximum), unit=there
    )
