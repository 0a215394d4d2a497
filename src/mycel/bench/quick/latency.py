"""The way of one task: from submission to result, and from a cold start to the first one."""

from __future__ import annotations

import time
from pathlib import Path

from mycel.bench import bench_swarm
from mycel.bench.bench_tasks import expected
from mycel.client import Client
from mycel.console.errors import CommandError
from mycel.local import local_swarm
from mycel.local.local_swarm import Running


def round_trips_ms(client: Client, warm_up: int, count: int) -> list[float]:
    """Single tasks, one after the other, through the client; the values are checked."""
    samples = []
    for number in range(warm_up + count):
        began = time.perf_counter()
        value = client.run("mycel.bench.bench_tasks:noop", number)
        samples.append((time.perf_counter() - began) * 1000)
        _check(value, number)
    return samples[warm_up:]


def _check(value: object, number: int) -> None:
    if not isinstance(value, list) or value[0] != expected(number):
        raise CommandError(f"task {number} has the wrong value {value}")


def first_result(home: Path, number: int) -> tuple[float, Running]:
    """Seconds from the start of `mycel up`, a process of its own, on a home that was stopped,
    to the value of a first task. The swarm stays up."""
    local_swarm.down(home)
    began = time.perf_counter()
    running = bench_swarm.start(home)
    with running.client() as client:
        value = client.run("mycel.bench.bench_tasks:noop", number)
    seconds = time.perf_counter() - began
    _check(value, number)
    return seconds, running
