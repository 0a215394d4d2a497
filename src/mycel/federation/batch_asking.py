"""Level 2 of choosing where the batch systems can be reached from here: each is asked at the same
time when it would start the job, and counts if it answers before the deadline."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as NotInTime
from pathlib import Path
from typing import Final

from mycel.batch.batch_system import BatchSystem, Submission
from mycel.batch.errors import BatchError
from mycel.core.agent.batch_jobs import ClusterJob, JobRefused
from mycel.core.agent.bids import WaitHistory, bid_of
from mycel.core.federation.asking import Asking
from mycel.core.federation.decision import Answer
from mycel.core.federation.errors import SpecError
from mycel.core.federation.graph.graph_units import BYTES
from mycel.core.federation.request.request_tree import SLOT, JobRequest, Request

HOUR_SECONDS: Final = 3600
"""The time limit of a job that has none: batch systems want one."""
MEMORY_MB: Final = 1_000
"""Of a job that asks for no memory, on each node."""
_SCRIPT: Final = "#!/bin/sh\nexit 0\n"
_KNOWN: Final = frozenset(("core", "gpu", "memory"))


def batch_job(job: JobRequest) -> ClusterJob:
    """The job in the words of batch systems: nodes, and what each of their tasks takes. They have
    no words for racks or sockets. Raises SpecError for what cannot be said."""
    node, nodes, tasks, contents = _layers(job)
    amounts = {one.type: one for one in contents}
    if len(amounts) < len(contents) or not amounts.keys() <= _KNOWN:
        raise SpecError("resources", "batch systems are asked for cores, GPUs and memory of nodes")
    if any(one.contents or one.requires for one in contents):
        raise SpecError("resources", "batch systems cannot be asked for parts of parts")
    cores = amounts["core"].count.minimum if "core" in amounts else 1
    gpus = amounts["gpu"].count.minimum if "gpu" in amounts else 0
    memory = _megabytes(amounts["memory"]) if "memory" in amounts else 0
    wanted = ClusterJob(
        command=("true",),
        nodes=nodes,
        tasks_per_node=tasks,
        cores_per_task=cores,
        gpus_per_node=gpus * tasks,
        memory_mb=memory * tasks or MEMORY_MB,
        exclusive=node.exclusive is True,
        seconds=job.duration_seconds or HOUR_SECONDS,
    )
    try:
        return wanted.checked()
    except JobRefused as error:
        raise SpecError("resources", str(error)) from None


def _layers(job: JobRequest) -> tuple[Request, int, int, tuple[Request, ...]]:
    """The node, how many nodes, tasks on each, and what a task takes."""
    if len(job.resources) == 1:
        (top,) = job.resources
        below = top.contents
        if top.type == "node" and len(below) == 1 and below[0].type == SLOT:
            return top, top.count.minimum, below[0].count.minimum, below[0].contents
        if top.type == "node" and all(one.type != SLOT for one in below):
            return top, top.count.minimum, 1, below
        if top.type == SLOT and len(below) == 1 and below[0].type == "node":
            (node,) = below
            return node, top.count.minimum * node.count.minimum, 1, node.contents
    raise SpecError("resources", "batch systems are asked for nodes, with or without slots")


def _megabytes(memory: Request) -> int:
    return -(-memory.count.minimum * BYTES.get(memory.unit, 10**6) // 10**6)


def ask(
    asking: Asking,
    systems: Mapping[str, BatchSystem],
    job: JobRequest,
    costs: Mapping[str, float],
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Answer]:
    """Answers that came in time. `asking` was opened by the same clock. Clusters without a system
    are not asked, and so say nothing."""
    asked = {name: system for name, system in systems.items() if name in asking.asked}
    pool = ThreadPoolExecutor(max(1, len(asked)))
    waiting = [
        pool.submit(_answer, name, system, job, costs.get(name, 0.0))
        for name, system in asked.items()
    ]
    try:
        for done in as_completed(waiting, max(0.0, asking.until - clock())):
            asking.answer(done.result(), clock())
    except NotInTime:
        pass  # who has not answered by now is out
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return asking.answers


def _answer(name: str, system: BatchSystem, job: JobRequest, cost: float) -> Answer:
    try:
        wanted = batch_job(job)
        with tempfile.TemporaryDirectory(prefix="mycel-ask-") as folder:
            submission = Submission(
                name="mycel-ask", job=wanted, script=_SCRIPT, folder=Path(folder)
            )
            estimate = system.estimate(submission)
        capacity = system.capacity() if estimate is None else None
    except (BatchError, SpecError) as error:
        return Answer(name, False, reason=str(error))
    bid = bid_of(wanted, estimate, WaitHistory(), capacity)
    if bid.starts_in is None:
        return Answer(name, False, reason=bid.refusal)
    source = "" if bid.source is None else bid.source.value
    return Answer(name, True, eta_seconds=bid.starts_in, cost=cost, eta_from=source)
