"""`mycel bench quick`: the figures of a swarm on this machine, in about half a minute.

    references ── fsync, spawn, echo: what the machine gives without Mycel
    home "small" ─ memory: idle, then with a long queue
    home "speed" ─ first result, latency, single tasks, processes, one big job
                   └─ SIGKILL of the scheduler; every acknowledged result must be there

Swarms are real: gateway, scheduler and two workers as processes, the journal on a disk.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from mycel.bench import bench_swarm, process_memory
from mycel.bench.percentiles import median, percentile
from mycel.console.errors import UsageError
from mycel.console.tables import print_json
from mycel.local import local_swarm, scratch_homes

from . import bulk, http_load, latency, references
from .figures import Figures, notes, rounded, show

RUNS: Final = 3
"""Of what is short enough to be run again; the median counts."""
SETTLE_SECONDS: Final = 1.0
"""Between the last task and the reading of idle memory."""


class Sizes(msgspec.Struct, frozen=True):
    """How much of each is done."""

    noops: int = 10_000
    singles: int = 5_000
    samples: int = 1_000
    warm_up: int = 200
    processes: int = 2_000
    queued: int = 100_000
    looked_at: int = 100
    fsyncs: int = 300
    spawns: int = 2_000
    echoes: int = 40_000

    def scaled(self, factor: float) -> Sizes:
        fields = msgspec.structs.asdict(self)
        return Sizes(**{name: max(1, round(value * factor)) for name, value in fields.items()})


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mycel bench quick", description="Measure a swarm of this machine's own."
    )
    parser.add_argument("--json", action="store_true", help="print one flat JSON object")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="on the disk to measure")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="F",
        help="so many times as many tasks (1); figures of other scales do not compare",
    )
    options = parser.parse_args(given)
    if not 0 < options.scale <= 100:
        raise UsageError("--scale is above 0 and at most 100")
    with scratch_homes.workspace(options.folder or scratch_homes.default_folder()) as folder:
        figures = _measure(folder, options.scale)
    if options.json:
        print_json(rounded(figures))
    else:
        show(figures, notes(figures))
    return 0


def _measure(folder: Path, scale: float) -> Figures:
    sizes = Sizes().scaled(scale)
    fields: dict[str, float] = {"scale": scale}
    for part in (_references, _memory, _speed):
        fields |= part(folder, sizes)
    return Figures(**fields)  # type: ignore[arg-type]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _references(folder: Path, sizes: Sizes) -> dict[str, float]:
    _say("the machine itself: fsync, spawn, echo")
    return {
        "ref_fsync_ms_p50": references.fsync_ms_p50(folder, sizes.fsyncs),
        "ref_spawn_per_s": references.spawns_per_s(sizes.spawns),
        "ref_echo_per_s": references.echoes_per_s(sizes.echoes),
    }


def _memory(folder: Path, sizes: Sizes) -> dict[str, float]:
    """In a swarm that has done nothing else: what was freed before would hide growth."""
    _say("memory of an idle swarm")
    home = folder / "small"
    running = bench_swarm.create(home)
    with running.client() as client:
        process_memory.warm_each_worker(client, bench_swarm.WORKERS)
        time.sleep(SETTLE_SECONDS)
        idle = process_memory.family_pss_mb(running.pids.values())
        _say(f"memory of {sizes.queued:,} queued tasks")
        scheduler = running.pids["scheduler"]
        grown = process_memory.queued_growth_mb(client, scheduler, sizes.queued, sizes.looked_at)
    local_swarm.down(home)
    return {"idle_system_pss_mb": idle, "queued_100k_mb": grown}


def _speed(folder: Path, sizes: Sizes) -> dict[str, float]:
    _say("from 'mycel up' to a first result")
    home = folder / "speed"
    bench_swarm.create(home)  # from now on the home exists
    starts = [latency.first_result(home, number) for number in range(RUNS)]
    running = starts[-1][1]
    with running.client() as client:
        process_memory.warm_each_worker(client, bench_swarm.WORKERS)
        _say(f"{sizes.samples:,} single tasks, one after the other")
        samples = latency.round_trips_ms(client, sizes.warm_up, sizes.samples)
        _say(f"{sizes.singles:,} single tasks over {http_load.CONNECTIONS} connections")
        order = http_load.Order(running.api, running.token, sizes.warm_up, sizes.singles)
        singles = http_load.single_http_tasks_per_s(order)
        _say(f"{sizes.processes:,} processes")
        processes = bulk.run_processes(client, sizes.processes)
        _say(f"{RUNS} jobs of {sizes.noops:,} tasks, then SIGKILL of the scheduler")
        runs = [bulk.run_noops(client, sizes.noops) for _ in range(RUNS - 1)]
        runs.append(bulk.run_noops(client, sizes.noops, kill=running.pids["scheduler"]))
    bulk.check_survival(running, runs[-1])
    local_swarm.down(home)
    return {
        "first_result_s": median([seconds for seconds, _ in starts]),
        "latency_ms_p50": percentile(samples, 50),
        "latency_ms_p95": percentile(samples, 95),
        "latency_ms_p99": percentile(samples, 99),
        "single_http_tasks_per_s": singles,
        "process_tasks_per_s": processes,
        "noop_tasks_per_s": median([run.tasks_per_s for run in runs]),
    }
