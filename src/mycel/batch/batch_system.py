"""What a batch system has to be able to do. `mycel.testing.batch` checks any implementation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from mycel.core.agent.batch_jobs import BatchEntry, Capacity, ClusterJob, Estimate

ELEMENT_VARIABLE: Final = "MYCEL_ELEMENT"
"""Every batch system tells a script by this variable which element of an array it is: 0 and up."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Unique to an attempt: jobs are found again and cancelled by it, never by the batch system's
    own number, which it can give out twice after a crash. Letters, digits, '-' and '_'."""
    job: ClusterJob
    """What it needs. What it runs is the script."""
    script: str
    """For a POSIX shell, beginning with `#!`."""
    folder: Path
    """Working folder, and where the script's own output goes. Every node can see it."""


class BatchSystem(Protocol):
    """Calls block, for no longer than some tens of seconds. Everything raises BatchError."""

    def submit(self, submission: Submission) -> str:
        """The batch system's number for it. It must never run it a second time by itself."""
        ...

    def queue(self, prefix: str) -> Sequence[BatchEntry]:
        """All jobs of this user whose names begin so, and for some time those that have ended.
        What is missing may have ended long ago, or never have arrived."""
        ...

    def cancel(self, names: Sequence[str]) -> None:
        """Whatever has one of these names, waiting or running. Unknown names are no error."""
        ...

    def estimate(self, submission: Submission) -> Estimate | None:
        """When it would start, without submitting it; None where only time can tell."""
        ...

    def capacity(self, partition: str = "") -> Capacity: ...
