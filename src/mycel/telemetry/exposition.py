"""The text of a scrape. `prometheus_client` takes 70 ms to import, so the first scrape does it:
let a thread do that one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

Collect = Callable[[], "Iterator[Metric]"]


class Exposition:
    """What `collect` yields at the moment, and what the process itself takes."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._registry: CollectorRegistry | None = None

    def text(self) -> tuple[bytes, str]:
        """And its content type."""
        from prometheus_client import (
            CONTENT_TYPE_LATEST,
            CollectorRegistry,
            ProcessCollector,
            generate_latest,
        )

        if self._registry is None:
            registry = CollectorRegistry()
            registry.register(_Collector(self._collect))
            ProcessCollector(registry=registry)
            self._registry = registry
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _Collector:
    def __init__(self, collect: Collect) -> None:
        self.collect = collect

    def describe(self) -> list[Metric]:
        """Nothing: else registering would already ask for figures."""
        return []


def common_metrics(version: str, log_lines_dropped: int) -> Iterator[Metric]:
    """Of every role."""
    from prometheus_client.core import CounterMetricFamily, InfoMetricFamily

    # The library adds `_total` to the names of counters.
    yield CounterMetricFamily(
        "mycel_log_lines_dropped", "Log lines that were lost.", log_lines_dropped
    )
    yield InfoMetricFamily("mycel_build", "The running version.", {"version": version})
