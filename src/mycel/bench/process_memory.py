"""How much memory processes take. PSS: what they share is divided among those who share it,
so that a sum over processes counts nothing twice."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from mycel.client import Client, Worker
from mycel.console.errors import CommandError

HOLD_SECONDS = 0.3
JOIN_SECONDS_MAX = 10.0
QUEUED_LABEL = {"bench": "nobody-has-this"}


def pss_mb(pid: int) -> float:
    """Of one process, in 10⁶ bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise CommandError(f"/proc/{pid}/smaps_rollup does not tell the PSS")


def family_pss_mb(pids: Iterable[int]) -> float:
    """Of these processes and all that they have started."""
    family = {
        member.pid
        for pid in pids
        for member in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
    }
    return sum(pss_mb(pid) for pid in family)


def warm_each_worker(client: Client, workers: int) -> None:
    """One task on each worker: as large as a worker, so that no two share one."""
    there = _await_workers(client, workers)
    names = {worker.peer_id for worker in there}
    cores = min(worker.capabilities["cpu_cores"] for worker in there)
    task: dict[str, Any] = {
        "python": "mycel.bench.bench_tasks:hold",
        "requirements": {"cpu_cores": cores},
    }
    job = client.submit_job(task, arguments=[[HOLD_SECONDS]] * workers)
    used = {result.worker for result in client.results(job.id)}
    if used != names:
        raise CommandError("tasks as large as a worker did not go to different workers")


def _await_workers(client: Client, count: int) -> list[Worker]:
    ends_at = time.monotonic() + JOIN_SECONDS_MAX
    while len(there := client.workers()) < count:
        if time.monotonic() > ends_at:
            raise CommandError(f"{len(there)} of {count} workers have joined the swarm")
        time.sleep(0.02)
    return there


def queued_growth_mb(client: Client, scheduler: int, count: int, looked_at: int) -> float:
    """The scheduler's growth with `count` tasks that nobody can run. Some of them are then
    read and cancelled, and what that takes counts too."""
    before = pss_mb(scheduler)
    task = {"python": "mycel.bench.bench_tasks:noop", "requirements": {"labels": QUEUED_LABEL}}
    job = client.submit_job(task, arguments=([number] for number in range(count)))
    full = pss_mb(scheduler)
    indexes = range(0, count, max(1, count // looked_at))[:looked_at]
    for index in indexes:
        read = client.task(f"{job.id}.{index}")
        if read.state != "queued" or read.arguments != [index]:
            raise CommandError(
                f"queued task {index} reads as {read.state} with arguments {read.arguments}"
            )
        client.cancel(read.id)
    counts = client.job(job.id).tasks
    if (counts.total, counts.queued, counts.cancelled) != (
        count,
        count - len(indexes),
        len(indexes),
    ):
        raise CommandError(f"after {len(indexes)} cancellations the job counts {counts}")
    return max(full, pss_mb(scheduler)) - before
