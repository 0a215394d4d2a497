"""How reliable a worker is: its success rate, completion time, last sign of life and failures
in a row.

The counts fade: when `WINDOW` ends have been counted, all of them are halved, so that what a
worker did lately outweighs what it did long ago, and no number grows for ever.
"""

from __future__ import annotations

from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.journal import WorkerMeasured

WINDOW: Final = 1000


class WorkerHealth:
    __slots__ = ("busy_seconds", "consecutive_failures", "failed", "last_seen_at", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0.0
        self.failed = 0.0
        self.busy_seconds = 0.0
        """That the successful ones took together."""
        self.consecutive_failures = 0
        """Attempts in a row that the worker lost, or that its driver failed."""
        self.last_seen_at: float | None = None
        """Unix time of its last sign of life, as of the last save."""

    @property
    def success_rate(self) -> float | None:
        total = self.succeeded + self.failed
        return self.succeeded / total if total else None

    @property
    def avg_completion_seconds(self) -> float | None:
        return self.busy_seconds / self.succeeded if self.succeeded else None

    def success(self, seconds: float, count: int = 1) -> None:
        """Of so many attempts, which took so long together."""
        self.succeeded += count
        self.busy_seconds += seconds
        self.consecutive_failures = 0
        while self.succeeded + self.failed >= WINDOW:
            self._fade()

    def failure(self, *, at_fault: bool) -> None:
        """`at_fault`: the worker or its driver was, and not the task."""
        self.failed += 1.0
        if at_fault:
            self.consecutive_failures += 1
        if self.succeeded + self.failed >= WINDOW:
            self._fade()

    def _fade(self) -> None:
        self.succeeded /= 2.0
        self.failed /= 2.0
        self.busy_seconds /= 2.0

    def measured(self, worker: PeerId) -> WorkerMeasured:
        """As it stands in the journal."""
        return WorkerMeasured(
            worker,
            self.succeeded,
            self.failed,
            self.busy_seconds,
            self.consecutive_failures,
            self.last_seen_at,
        )


def restored_health(measured: WorkerMeasured) -> WorkerHealth:
    health = WorkerHealth()
    health.succeeded = measured.succeeded
    health.failed = measured.failed
    health.busy_seconds = measured.busy_seconds
    health.consecutive_failures = measured.consecutive_failures
    health.last_seen_at = measured.last_seen_at
    return health
