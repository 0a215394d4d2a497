"""What Prometheus sees of a node's membership in its swarm; every role that has metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric

    from mycel.swarm.interface import SwarmFigures

PREFIX = "mycel_swarm_"


def swarm_metrics(figures: Callable[[], SwarmFigures]) -> Callable[[], Iterator[Metric]]:
    return lambda: _collect(figures())


def _collect(figures: SwarmFigures) -> Iterator[Metric]:
    yield from _now(figures)
    yield from _totals(figures)


def _now(figures: SwarmFigures) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    yield _labelled(
        GaugeMetricFamily(
            f"{PREFIX}connections", "Standing ones, by path and transport.", labels=["kind"]
        ),
        figures.connections,
    )
    for name, text, value in (
        ("streams", "Standing streams.", figures.streams),
        ("dht_records", "Records kept for others.", figures.dht_records),
        ("dht_providers", "Provider records kept for others.", figures.dht_providers),
        ("dht_routing_table", "Peers in the routing table.", figures.dht_routing_table),
        ("relay_reservations", "Held by others at this node.", figures.relay_reservations),
        ("relay_circuits", "That go through this node.", figures.relay_circuits),
    ):
        yield GaugeMetricFamily(f"{PREFIX}{name}", text, value)


def _totals(figures: SwarmFigures) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, text, label, values in (
        ("dials", "By outcome.", "outcome", figures.dials),
        ("refusals", "Who got no further than the hello.", "reason", figures.refusals),
        ("cut_offs", "Misbehaving peers.", "reason", figures.cut_offs),
        ("bytes_in", "By path.", "path", figures.bytes_in),
        ("bytes_out", "By path.", "path", figures.bytes_out),
        ("dht_queries", "By kind.", "kind", figures.dht_queries),
        ("dht_published", "What this node told.", "outcome", figures.dht_published),
        ("dht_refused", "Records not kept or not believed.", "reason", figures.dht_refused),
    ):
        yield _labelled(CounterMetricFamily(f"{PREFIX}{name}", text, labels=[label]), values)
    for name, text, value in (
        ("hellos", "Connections that passed the hello.", figures.hellos),
        ("hello_seconds", "That it added to them.", figures.hello_microseconds / 1e6),
        ("trimmed", "Peers disconnected because there were too many.", figures.trimmed),
        ("gossip_published", "Messages of this node.", figures.gossip_published),
        ("gossip_received", "Messages taken in.", figures.gossip_received),
        ("gossip_invalid", "Messages refused.", figures.gossip_invalid),
        ("gossip_duplicates", "Messages that came again.", figures.gossip_duplicates),
        ("relay_circuits_opened", "Through this node.", figures.relay_circuits_total),
        ("notices_dropped", "That this node was too slow to take.", figures.dropped_notices),
    ):
        yield CounterMetricFamily(f"{PREFIX}{name}", text, value)


def _labelled(family: Metric, values: dict[str, int]) -> Metric:
    for label, value in sorted(values.items()):
        family.add_metric([label], value)  # type: ignore[attr-defined]
    return family
