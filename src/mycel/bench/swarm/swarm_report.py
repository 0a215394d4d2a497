"""The figures of `mycel bench swarm`: their names, and how people see them."""

from __future__ import annotations

import os
import platform

import msgspec

from mycel import __version__


class SwarmBenchFigures(msgspec.Struct, kw_only=True):
    """Flat, numbers but for the versions. `docs/performance.md` says what each means."""

    nodes: int
    processes: int
    scale: float
    joined: int
    join_s: float
    connections_per_node: float
    mb_per_node: float
    lookups_found: int
    lookups_unconnected: int
    lookup_ms_p50: float
    lookup_ms_p95: float
    gossip_delivered: float
    gossip_ms_p50: float
    gossip_ms_p99: float
    gossip_cpu_ms_per_delivery: float
    gossip_burst_delivered: float
    gossip_burst_s: float
    gossip_burst_cpu_ms_per_delivery: float
    killed: int
    lookups_found_after_kill: int
    lookup_ms_p95_after_kill: float
    gossip_delivered_after_kill: float
    requests_per_s: float
    request_ms_p50: float
    tcp_requests_per_s: float
    tcp_request_ms_p50: float
    bulk_mb_per_s: float
    hello_ms_p50: float
    cores: int = msgspec.field(default_factory=lambda: len(os.sched_getaffinity(0)))
    python: str = msgspec.field(default_factory=platform.python_version)
    version: str = __version__


def notes(figures: SwarmBenchFigures) -> dict[str, str]:
    return {
        "joined": f"of {figures.nodes}",
        "requests_per_s": f"{figures.requests_per_s / figures.tcp_requests_per_s:.0%} of plain TCP",
        "request_ms_p50": f"{figures.request_ms_p50 / figures.tcp_request_ms_p50:.1f} × plain TCP",
        "lookups_unconnected": "asked from nodes without a connection to the provider",
    }
