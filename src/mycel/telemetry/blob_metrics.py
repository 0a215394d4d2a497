"""What Prometheus sees of a scheduler's files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric

    from mycel.blobs.blob_server import BlobServer


def blob_metrics(node: BlobServer) -> Callable[[], Iterator[Metric]]:
    return lambda: _collect(node)


def _collect(node: BlobServer) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    traffic = node.traffic
    ways = {
        "sent": (traffic.sent, traffic.blobs_sent),
        "received": (traffic.received, traffic.blobs_received),
        "found": (traffic.found, traffic.blobs_found),
    }
    moved = CounterMetricFamily(
        "mycel_blob_bytes",
        "Of files: sent to workers and users, received, and found here when they were offered.",
        labels=["way"],
    )
    counted = CounterMetricFamily("mycel_blobs", "How many files those were.", labels=["way"])
    for way, (size, count) in ways.items():
        moved.add_metric([way], size)
        counted.add_metric([way], count)
    yield moved
    yield counted
    yield GaugeMetricFamily(
        "mycel_blob_store_bytes", "What is kept of files.", node.store.bytes_kept
    )
