"""The interface of batch systems over a Ray cluster. What is particular to Ray:

- A submission has a name that we choose, and a second one of the same name is refused. Elements of
  an array are submissions of their own, `NAME.INDEX`.
- It has no time limits: `timeout` ends the script. It has no forecast and no accounts, and a job
  has one node.
- `stop` reaches a job that waits only when it has started. So a job first looks for a file that a
  cancel leaves.
- What asks for more than there is would wait for ever, so it is refused here.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mycel.batch.batch_system import ELEMENT_VARIABLE, Submission
from mycel.batch.errors import BatchError
from mycel.core.agent.batch_jobs import (
    BatchEntry,
    BatchFailure,
    BatchState,
    Capacity,
    ClusterJob,
    Estimate,
)

from .ray_api import SECONDS, RayApi, nonsense

ADDRESS: Final = "http://127.0.0.1:8265"
ADDRESS_VARIABLE: Final = "RAY_API_SERVER_ADDRESS"
JOBS: Final = "/api/jobs/"
STATUS: Final = "/api/cluster_status"
KILL_SECONDS: Final = 10
FOLDER: Final = "mycel_folder"
"""In a job's metadata: where its cancel is left."""
CANCELLED: Final = ".cancelled"
BY_SIGTERM: Final = 143
_STATES: Final = {
    "PENDING": BatchState.PENDING,
    "RUNNING": BatchState.RUNNING,
    "STOPPED": BatchState.CANCELLED,
    "SUCCEEDED": BatchState.COMPLETED,
    "FAILED": BatchState.FAILED,
}


class RaySystem:
    def __init__(self, address: str = "", *, seconds: float = SECONDS) -> None:
        """Raises BatchError."""
        self._api = RayApi(address or os.environ.get(ADDRESS_VARIABLE) or ADDRESS, seconds)

    def submit(self, submission: Submission) -> str:
        if refusal := self._refusal(submission.job):
            raise BatchError(BatchFailure.REFUSED, refusal)
        script = submission.folder / f"{submission.name}.sh"
        script.write_text(submission.script, encoding="utf-8")
        for index in submission.job.indexes:
            self._submit_one(submission, index, script)
        return submission.name

    def queue(self, prefix: str) -> Sequence[BatchEntry]:
        return [one for one in self._entries() if one.name.startswith(prefix)]

    def cancel(self, names: Sequence[str]) -> None:
        wanted = frozenset(names)
        for job in self._jobs():
            entry = _entry(job)
            if entry is None or entry.name not in wanted or not entry.state.is_active:
                continue
            self._mark_cancelled(job, entry.name)
            path = f"{JOBS}{quote(entry.batch_id)}/stop"
            status, answer = self._api.call("POST", path)
            if status not in (200, 404):
                raise nonsense(path, answer)

    def estimate(self, submission: Submission) -> Estimate | None:
        refusal = self._refusal(submission.job)
        return Estimate(None, refusal) if refusal else None

    def capacity(self, partition: str = "") -> Capacity:
        used, total = self._usage("CPU")
        pending = sum(one.state is BatchState.PENDING for one in self._entries())
        return Capacity(int(total - used), int(total), pending)

    def _submit_one(self, submission: Submission, index: int, script: Path) -> None:
        job, name = submission.job, f"{submission.name}.{index}"
        run = f"timeout --kill-after={KILL_SECONDS} {job.seconds} /bin/sh"
        entrypoint = (
            f"cd {shlex.quote(str(submission.folder))} && "
            f"if [ -e {shlex.quote(submission.name + CANCELLED)} ]; then exit {BY_SIGTERM}; fi; "
            f"{ELEMENT_VARIABLE}={index} exec {run} {shlex.quote(str(script))}"
        )
        body = {
            "submission_id": name,
            "entrypoint": entrypoint,
            "metadata": {FOLDER: str(submission.folder)},
            "entrypoint_num_cpus": job.tasks_per_node * job.cores_per_task,
            "entrypoint_num_gpus": job.gpus_per_node,
            "entrypoint_memory": job.memory_mb << 20,
        }
        status, answer = self._api.call("POST", JOBS, body)
        if status == 200 or "already exists" in str(answer):
            return
        if 400 <= status < 500:
            raise BatchError(BatchFailure.REFUSED, f"Ray: {answer!s:.300}")
        raise nonsense(JOBS, answer)

    def _refusal(self, job: ClusterJob) -> str:
        if job.nodes > 1 or job.exclusive:
            return "Ray gives a job a part of one node"
        if job.account or job.partition or job.qos:
            return "Ray has no accounts, partitions or QOS"
        for kind, wanted in (
            ("CPU", job.tasks_per_node * job.cores_per_task),
            ("GPU", job.gpus_per_node),
        ):
            total = self._usage(kind)[1]
            if wanted > total:
                return f"{wanted} {kind} wanted, Ray has {total:g}"
        return ""

    def _usage(self, kind: str) -> tuple[float, float]:
        """Used and total, of the whole cluster."""
        answer = self._api.ask(STATUS)
        try:
            usage = answer["data"]["clusterStatus"]["loadMetricsReport"]["usage"]
            used, total = usage.get(kind, (0.0, 0.0))
            return float(used), float(total)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise nonsense(STATUS, answer) from None

    def _mark_cancelled(self, job: dict[str, Any], name: str) -> None:
        metadata = job.get("metadata")
        folder = metadata.get(FOLDER) if isinstance(metadata, dict) else None
        if isinstance(folder, str) and Path(folder).is_absolute():
            with contextlib.suppress(OSError):  # then it may begin, and is stopped after that
                (Path(folder) / f"{name}{CANCELLED}").touch()

    def _entries(self) -> list[BatchEntry]:
        return [entry for job in self._jobs() if (entry := _entry(job)) is not None]

    def _jobs(self) -> list[dict[str, Any]]:
        answer = self._api.ask(JOBS)
        if not isinstance(answer, list):
            raise nonsense(JOBS, answer)
        return answer


def _entry(one: Any) -> BatchEntry | None:
    """None for jobs of others: drivers have no submission id, and most ids end with no index."""
    if not isinstance(one, dict) or "status" not in one:
        raise nonsense(JOBS, one)
    submitted, status = one.get("submission_id"), one["status"]
    if not isinstance(submitted, str):
        return None
    name, dot, index = submitted.rpartition(".")
    if not dot or not index.isascii() or not index.isdigit() or len(index) > 9:
        return None
    state = _STATES.get(str(status))
    if state is None:
        raise nonsense(JOBS, status)
    reason = str(one.get("error_type") or "")[:200]
    return BatchEntry(name, int(index), state, submitted, reason)
