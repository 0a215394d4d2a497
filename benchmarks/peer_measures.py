"""What is asked of every peer. Runs in the peer's own environment: the standard library only.

The peer's script gives three functions; this one times them, and speaks with `peers.py`:
one JSON object a line on the standard output, and a line on the input where it is to go on.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

RUNS = 3


class Peer(Protocol):
    def noop(self, number: int) -> object:
        """One task that does nothing, to its end; what it returned."""

    def noops(self, count: int) -> Sequence[object]:
        """So many of them at once, with distinct arguments; what they returned."""

    def processes(self, count: int) -> None:
        """So many `/bin/true` at once, to their ends; an error if one fails."""


def expected(number: int) -> int:
    return number * 3 + 1


def run_true() -> int:
    """For peers whose tasks are functions: the cheapest way to a process that Python has."""
    process = os.posix_spawn("/bin/true", ["/bin/true"], {})
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def measure(peer: Peer, *, noops: int, latencies: int, processes: int, warm_up: int) -> None:
    """The first result has been told by `first`, as soon as it was there."""
    for number in range(warm_up):
        _check(peer.noop(number), number)
    _tell("warm")
    sys.stdin.readline()  # meanwhile the memory is read
    samples = []
    for number in range(latencies):
        began = time.perf_counter()
        value = peer.noop(number)
        samples.append((time.perf_counter() - began) * 1000)
        _check(value, number)
    samples.sort()
    figures = {
        "latency_ms_p50": samples[len(samples) // 2],
        "latency_ms_p99": samples[len(samples) * 99 // 100],
        "process_tasks_per_s": _rate(lambda: peer.processes(processes), processes),
    }
    if noops:  # else it has none
        rates = [_noops(peer, noops) for _ in range(RUNS)]
        figures["noop_tasks_per_s"] = statistics.median(rates)
    _tell("figures", **figures)


def first(peer: Peer) -> None:
    _check(peer.noop(0), 0)
    _tell("first")


def _noops(peer: Peer, count: int) -> float:
    values: list[object] = []
    rate = _rate(lambda: values.extend(peer.noops(count)), count)
    for number, value in enumerate(values):
        _check(value, number)
    assert len(values) == count
    return rate


def _rate(do: Callable[[], None], count: int) -> float:
    began = time.perf_counter()
    do()
    return count / (time.perf_counter() - began)


def _check(value: object, number: int) -> None:
    if value != expected(number):
        raise SystemExit(f"task {number} gave {value!r}")


def _tell(event: str, **fields: float) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)
