"""Work that could never run is refused before the run: too large, or not for the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .entities import Job, Server
from .errors import ScenarioError
from .policy import Policy


def check_fit(servers: Sequence[Server], jobs: Sequence[Job]) -> None:
    """Refuses work that could never run, however long it waits."""
    rooms: dict[Any, int] = {}
    for job in jobs:
        for demand in {task.demand for task in job.tasks}:
            if demand not in rooms:
                rooms[demand] = sum(_count(server, demand, len(job.tasks)) for server in servers)
            if not rooms[demand]:
                raise ScenarioError(
                    f"job {job.name or job.index} needs {demand} for one task, and no server has "
                    "that much: give a larger server or a smaller task"
                )
        if job.is_gang and len({task.demand for task in job.tasks}) == 1:
            demand = job.tasks[0].demand
            fit = sum(_count(server, demand, len(job.tasks)) for server in servers)
            if fit < len(job.tasks):
                raise ScenarioError(
                    f"job {job.name or job.index} starts {len(job.tasks)} tasks at once, and the "
                    f"empty cluster has room for {fit}: give more servers or a smaller gang"
                )


def check_policy(policy: type[Policy], servers: Sequence[Server], jobs: Sequence[Job]) -> None:
    if not policy.starts_gangs and any(job.is_gang and len(job.tasks) > 1 for job in jobs):
        raise ScenarioError(
            f"policy {policy.name!r} does not start gangs, and some jobs start all their tasks at "
            "once: take a central policy, or gang = false"
        )
    if policy.needs_equal_servers and len({one.resources.capacity for one in servers}) > 1:
        raise ScenarioError(
            f"policy {policy.name!r} sends tasks to any server, and these servers differ: take a "
            "central policy or homes"
        )


def _count(server: Server, demand: Any, enough: int) -> int:
    """How many of the demand an empty server holds, counted up to `enough`."""
    resources = server.resources
    if not resources.fits(demand):
        return 0
    bounds = [enough]
    if demand.cores_milli:
        bounds.append(resources.capacity.cores_milli // demand.cores_milli)
    if demand.memory_mib:
        bounds.append(resources.capacity.memory_mib // demand.memory_mib)
    if demand.gpus and demand.gpu_milli:
        bounds.append(
            resources.capacity.gpus * (1000 // demand.gpu_milli) // demand.gpus,
        )
    return min(bounds)
