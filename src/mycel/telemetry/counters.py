"""What is counted on the way, cheaply: no lock, no label look-up, a batch at a time.

All of it is used by one thread, the event loop's; `prometheus_client` only reads it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

LATENCY_BUCKETS_SECONDS: Final = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0),
)
SELECTION_BUCKETS_SECONDS: Final = (
    *(0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.0001, 0.0002, 0.0005),
    *(0.001, 0.002, 0.005, 0.01, 0.05),
)


class SchedulerFigures(msgspec.Struct, kw_only=True):
    """The state of a scheduler at the moment of a scrape."""

    queued: int = 0
    completed: int = 0
    """Succeeded, since the journal began; likewise failed and cancelled."""
    failed: int = 0
    cancelled: int = 0
    running: int = 0
    """Assignments sent and unfinished."""
    leases: int = 0
    workers_available: int = 0
    """Healthy and accepting work."""
    workers_quarantined: int = 0
    """Healthy ones that spoil what they get, and get nothing."""
    workers_known: int = 0
    """With a link or without."""
    workers_busy: int = 0
    """Running at least one task."""
    selection_mean_seconds: float = 0.0
    """Of the last minute."""
    completions_per_second: float = 0.0
    """Tasks that succeeded or failed, likewise."""
    latency_mean_seconds: float = 0.0
    """From queue to terminal state, likewise."""
    log_lines_dropped: int = 0
    results_damaged: int = 0
    """Whose digest did not fit."""
    results_refused: int = 0
    """Of attempts that were not, or no longer, their task's current one."""
    forgeries_refused: int = 0
    """Attempts that workers listed or ended, and that they were never given."""
    workers_refused: int = 0
    """Because they speak another version."""
    checks_late: int = 0
    """Of workers without a link, for signs of life."""

    @property
    def success_rate(self) -> float:
        """Of all that succeeded or failed; 1 before the first."""
        finished = self.completed + self.failed
        return self.completed / finished if finished else 1.0


class Histogram:
    """Counts in buckets; a value on a bound belongs below it, as Prometheus has it."""

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(bounds), "bounds ascend"
        self.bounds: Final = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """The same value `count` times, for a batch that was measured as a whole."""
        self._counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def observe_all(self, values: Iterable[float]) -> None:
        counts, bounds = self._counts, self.bounds
        total = 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        self.sum += total

    def cumulative(self) -> list[int]:
        """How many values are at most each bound; the last is how many there are."""
        below, total = [], 0
        for count in self._counts:
            total += count
            below.append(total)
        return below


class Recent:
    """Mean and rate over a sliding window, kept in slices of it."""

    SLICES: Final = 12

    def __init__(self, now: float, window_seconds: float = 60.0) -> None:
        self._began_at = now
        self._window_seconds = window_seconds
        self._slice_seconds = window_seconds / self.SLICES
        self._slices: dict[int, tuple[float, int]] = {}

    def add(self, now: float, total: float, count: int = 1) -> None:
        """`count` values that sum up to `total`."""
        number = int(now // self._slice_seconds)
        earlier_total, earlier_count = self._slices.get(number, (0.0, 0))
        self._slices[number] = (earlier_total + total, earlier_count + count)
        if len(self._slices) > self.SLICES:
            self._forget(number)

    def mean(self, now: float) -> float:
        """0 if nothing was added within the window."""
        self._forget(int(now // self._slice_seconds))
        count = sum(count for _, count in self._slices.values())
        return sum(total for total, _ in self._slices.values()) / count if count else 0.0

    def per_second(self, now: float) -> float:
        """How many values came, by the second; over less than a window at the beginning."""
        self._forget(int(now // self._slice_seconds))
        seconds = min(self._window_seconds, max(now - self._began_at, self._slice_seconds))
        return sum(count for _, count in self._slices.values()) / seconds

    def _forget(self, number: int) -> None:
        oldest = number - self.SLICES + 1
        self._slices = {n: kept for n, kept in self._slices.items() if n >= oldest}
