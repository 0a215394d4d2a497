"""The figures: their names, what they are compared with, how people see them."""

from __future__ import annotations

import os
import platform

import msgspec

from mycel import __version__


class Figures(msgspec.Struct, kw_only=True):
    """What `mycel bench quick --json` prints: flat, numbers but for the versions."""

    noop_tasks_per_s: float
    single_http_tasks_per_s: float
    latency_ms_p50: float
    latency_ms_p95: float
    latency_ms_p99: float
    process_tasks_per_s: float
    idle_system_pss_mb: float
    queued_100k_mb: float
    first_result_s: float
    ref_fsync_ms_p50: float
    ref_spawn_per_s: float
    ref_echo_per_s: float
    scale: float
    cores: int = msgspec.field(default_factory=lambda: len(os.sched_getaffinity(0)))
    python: str = msgspec.field(default_factory=platform.python_version)
    version: str = __version__


def rounded(figures: msgspec.Struct) -> dict[str, float | str]:
    """Four digits: the noise is larger than what is cut off."""
    fields: dict[str, float | str] = msgspec.structs.asdict(figures)
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in fields.items()
    }


def show(figures: msgspec.Struct, notes: dict[str, str]) -> None:
    """For people, with a note beside the figures that have one."""
    for name, value in rounded(figures).items():
        number = f"{value:>12,.10g}" if isinstance(value, float | int) else f"{value:>12}"
        print(f"{name:<34}{number}  {notes.get(name, '')}".rstrip())


def notes(figures: Figures) -> dict[str, str]:
    """What figures are of the machine's own."""
    spawns = figures.process_tasks_per_s / figures.ref_spawn_per_s
    echoes = figures.single_http_tasks_per_s / figures.ref_echo_per_s
    commits = figures.latency_ms_p50 / figures.ref_fsync_ms_p50
    return {
        "single_http_tasks_per_s": f"{echoes:.0%} of bare echoes",
        "latency_ms_p50": f"{commits:.1f} × a bare fsync",
        "process_tasks_per_s": f"{spawns:.0%} of bare spawns",
    }
