"""A batch system without a cluster: a queue in memory, and scripts as processes of this machine.

It forgets, crashes and loses what it was asked, so that one can see what its users make of that.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Final

import msgspec

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

ENVIRONMENT: Final = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}


class _Element(msgspec.Struct):
    number: int
    index: int
    submission: Submission
    state: BatchState = BatchState.PENDING
    process: subprocess.Popen[bytes] | None = None

    @property
    def cores(self) -> int:
        job = self.submission.job
        return job.nodes * job.tasks_per_node * job.cores_per_task

    def entry(self) -> BatchEntry:
        return BatchEntry(self.submission.name, self.index, self.state, str(self.number))


class MemoryBatch:
    """`nodes` of `cores` each. Time passes whenever it is asked something."""

    def __init__(self, *, nodes: int = 4, cores: int = 4, queue_max: int = 10_000) -> None:
        self._nodes = nodes
        self._cores = cores
        self._queue_max = queue_max
        self._elements: list[_Element] = []
        self._submitted = 0
        self.fails_with: BatchFailure | None = None
        """From now on every call fails so, without doing anything."""
        self.loses_answers = False
        """Submissions are obeyed, but nobody is told."""

    def submit(self, submission: Submission) -> str:
        self._advance()
        if refusal := self._refusal(submission.job):
            raise BatchError(BatchFailure.REFUSED, refusal)
        waiting = sum(one.state is BatchState.PENDING for one in self._elements)
        if waiting + len(submission.job.indexes) > self._queue_max:
            raise BatchError(BatchFailure.FULL, f"{waiting} jobs wait, no more than that can")
        self._submitted += 1
        for index in submission.job.indexes:
            self._elements.append(_Element(self._submitted, index, submission))
        self._advance()
        if self.loses_answers:
            raise BatchError(BatchFailure.SLOW, "no answer")
        return str(self._submitted)

    def queue(self, prefix: str) -> Sequence[BatchEntry]:
        self._advance()
        return [one.entry() for one in self._elements if one.submission.name.startswith(prefix)]

    def cancel(self, names: Sequence[str]) -> None:
        self._advance()
        for element in self._elements:
            if element.submission.name in names and element.state.is_active:
                self._kill(element)
                element.state = BatchState.CANCELLED
        self._advance()

    def estimate(self, submission: Submission) -> Estimate:
        self._advance()
        if refusal := self._refusal(submission.job):
            return Estimate(None, refusal)
        waits = any(one.state is BatchState.PENDING for one in self._elements)
        return Estimate(float(submission.job.seconds) if waits else 0.0)

    def capacity(self, partition: str = "") -> Capacity:
        self._advance()
        pending = sum(one.state is BatchState.PENDING for one in self._elements)
        return Capacity(self._idle(), self._nodes * self._cores, pending)

    def forget_ended(self) -> None:
        """As Slurm does when MinJobAge has passed."""
        self._advance()
        self._elements = [one for one in self._elements if one.state.is_active]

    def lose_pending(self) -> None:
        """As a controller does that is killed before it has saved them."""
        self._elements = [one for one in self._elements if one.state is not BatchState.PENDING]

    def close(self) -> None:
        for element in self._elements:
            self._kill(element)

    def _refusal(self, job: ClusterJob) -> str:
        if job.nodes > self._nodes:
            return f"{job.nodes} nodes wanted, there are {self._nodes}"
        if job.tasks_per_node * job.cores_per_task > self._cores:
            return f"no node has more than {self._cores} cores"
        return ""

    def _idle(self) -> int:
        running = (one for one in self._elements if one.state is BatchState.RUNNING)
        return self._nodes * self._cores - sum(one.cores for one in running)

    def _advance(self) -> None:
        if self.fails_with is not None:
            raise BatchError(self.fails_with, f"as the test wants it: {self.fails_with.value}")
        for element in self._elements:
            if element.process is not None and element.state is BatchState.RUNNING:
                code = element.process.poll()
                if code is not None:
                    element.state = BatchState.FAILED if code else BatchState.COMPLETED
        for element in self._elements:
            if element.state is BatchState.PENDING and element.cores <= self._idle():
                self._start(element)

    def _start(self, element: _Element) -> None:
        submission = element.submission
        first, _, rest = submission.script.partition("\n")
        script = f"{first}\n{ELEMENT_VARIABLE}={element.index}\n{rest}"
        with (submission.folder / f"memory-{element.number}.out").open("ab") as out:
            element.process = subprocess.Popen(
                ["/bin/sh", "-c", script],
                cwd=submission.folder,
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        element.state = BatchState.RUNNING

    @staticmethod
    def _kill(element: _Element) -> None:
        if element.process is not None and element.process.poll() is None:
            os.killpg(element.process.pid, signal.SIGKILL)
            element.process.wait()
