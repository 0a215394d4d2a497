"""What Prometheus sees of a scheduler.

The six metrics of the scheduler-nodes document keep their names; ours begin with `mycel_`.
Values are pulled from `SchedulerFigures` at the scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .counters import (
    LATENCY_BUCKETS_SECONDS,
    SELECTION_BUCKETS_SECONDS,
    Histogram,
    Recent,
    SchedulerFigures,
)
from .exposition import Exposition, common_metrics

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["Histogram", "Recent", "SchedulerFigures", "SchedulerMetrics"]


class SchedulerMetrics:
    """Owns the histograms; everything else comes from `figures` when it is asked for."""

    def __init__(self, figures: Callable[[], SchedulerFigures], *, version: str) -> None:
        self._figures = figures
        self._version = version
        self._exposition = Exposition(self._collect)
        self.swarm: Callable[[], Iterator[Metric]] | None = None
        """What the node itself shows, once it runs; see `swarm_metrics`."""
        self.blobs: Callable[[], Iterator[Metric]] | None = None
        """What there is of files; see `blob_metrics`."""
        self.task_latency_seconds = Histogram(LATENCY_BUCKETS_SECONDS)
        """From queue to terminal state."""
        self.worker_selection_seconds = Histogram(SELECTION_BUCKETS_SECONDS)

    def exposition(self) -> tuple[bytes, str]:
        """The text of a scrape, and its content type."""
        return self._exposition.text()

    def _collect(self) -> Iterator[Metric]:
        figures = self._figures()
        yield from _of_the_document(figures)
        yield from _of_ours(figures)
        yield from common_metrics(self._version, figures.log_lines_dropped)
        yield _histogram(
            "mycel_scheduler_task_latency_seconds",
            "From a task's queueing to its terminal state.",
            self.task_latency_seconds,
        )
        yield _histogram(
            "mycel_scheduler_worker_selection_seconds",
            "What it takes to choose a worker.",
            self.worker_selection_seconds,
        )
        if self.swarm is not None:
            yield from self.swarm()
        if self.blobs is not None:
            yield from self.blobs()


def _of_the_document(figures: SchedulerFigures) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    prefix = "hypha_scheduler_"
    # The library adds `_total` to the names of counters.
    yield GaugeMetricFamily(f"{prefix}tasks_queued", "Tasks that wait.", figures.queued)
    yield CounterMetricFamily(
        f"{prefix}tasks_completed", "Tasks that succeeded.", figures.completed
    )
    yield CounterMetricFamily(f"{prefix}tasks_failed", "Tasks that failed.", figures.failed)
    yield GaugeMetricFamily(
        f"{prefix}workers_available",
        "Workers that are healthy and accept work.",
        figures.workers_available,
    )
    yield GaugeMetricFamily(
        f"{prefix}workers_busy", "Workers that run at least one task.", figures.workers_busy
    )
    yield GaugeMetricFamily(
        f"{prefix}worker_selection_duration_seconds",
        "Mean time to choose a worker, over the last minute.",
        figures.selection_mean_seconds,
    )


def _of_ours(figures: SchedulerFigures) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    prefix = "mycel_scheduler_"
    yield CounterMetricFamily(
        f"{prefix}tasks_cancelled", "Tasks that were cancelled.", figures.cancelled
    )
    yield GaugeMetricFamily(f"{prefix}tasks_running", "Tasks with a worker.", figures.running)
    yield GaugeMetricFamily(f"{prefix}leases", "Registered workers.", figures.leases)
    yield GaugeMetricFamily(
        f"{prefix}workers_quarantined",
        "Workers that spoil what they get, and get nothing.",
        figures.workers_quarantined,
    )
    yield GaugeMetricFamily(
        f"{prefix}workers_known",
        "Workers with a link, and those that others have told of.",
        figures.workers_known,
    )
    yield GaugeMetricFamily(
        f"{prefix}task_completion_rate",
        "Tasks that succeeded or failed, by the second, over the last minute.",
        figures.completions_per_second,
    )
    yield GaugeMetricFamily(
        f"{prefix}task_average_latency_seconds",
        "Mean time from a task's queueing to its terminal state, over the last minute.",
        figures.latency_mean_seconds,
    )
    yield GaugeMetricFamily(
        f"{prefix}task_success_rate",
        "The share that succeeded of all tasks that succeeded or failed.",
        figures.success_rate,
    )
    yield CounterMetricFamily(
        f"{prefix}results_damaged", "Results whose digest did not fit.", figures.results_damaged
    )
    yield CounterMetricFamily(
        f"{prefix}results_refused",
        "Results of attempts that were not their task's current one.",
        figures.results_refused,
    )
    yield CounterMetricFamily(
        f"{prefix}forgeries_refused",
        "Attempts that workers listed or ended, and that they were never given.",
        figures.forgeries_refused,
    )
    yield CounterMetricFamily(
        f"{prefix}workers_refused",
        "Registrations of workers that speak another version.",
        figures.workers_refused,
    )
    yield CounterMetricFamily(
        f"{prefix}checks_late",
        "Workers without a link that were asked for a sign of life too late.",
        figures.checks_late,
    )


def _histogram(name: str, documentation: str, histogram: Histogram) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    bounds = [*(repr(bound) for bound in histogram.bounds), "+Inf"]
    counts = histogram.cumulative()
    return HistogramMetricFamily(
        name, documentation, list(zip(bounds, counts, strict=True)), histogram.sum
    )
