"""Jobs of many small tasks: how fast they go, that each value is right, and that nothing
which the client was told is lost when the scheduler is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import psutil

from mycel.bench import bench_swarm
from mycel.bench.bench_tasks import expected
from mycel.client import Client, Result
from mycel.console.errors import CommandError
from mycel.local.local_swarm import Running

NOOP = {"python": "mycel.bench.bench_tasks:noop"}
END_SECONDS_MAX = 10.0


class Bulk(msgspec.Struct, frozen=True):
    job_id: str
    results: list[Result]
    seconds: float

    @property
    def tasks_per_s(self) -> float:
        return len(self.results) / self.seconds


def run_noops(client: Client, count: int, kill: int | None = None) -> Bulk:
    """One job, from before its submission to its last result line. With `kill`, that process
    is killed as soon as the line is here."""
    arguments = [[number] for number in range(count)]
    results: list[Result] = []
    began = time.perf_counter()
    job = client.submit_job(NOOP, arguments=arguments, name="bench")
    for result in client.results(job.id):
        results.append(result)
        if len(results) == count:
            if kill is not None:
                os.kill(kill, signal.SIGKILL)
            break
    seconds = time.perf_counter() - began
    check_values(results, count)
    return Bulk(job.id, results, seconds)


def check_values(results: Iterable[Result], count: int) -> None:
    """Each task has one result, with the value that its argument gives and a pid."""
    seen: set[int] = set()
    for result in results:
        if result.state != "succeeded":
            raise CommandError(f"task {result.index} has {result.state}: {result.error}")
        value, pid = result.value
        if value != expected(result.index) or pid <= 1 or result.index in seen:
            raise CommandError(f"task {result.index} has a wrong or second value: {result.value}")
        seen.add(result.index)
    if seen != set(range(count)):
        raise CommandError(f"{len(seen)} of {count} tasks have a result")


def check_survival(running: Running, told: Bulk) -> None:
    """After the kill: the journal has a row for each result that the client was told, and a
    scheduler that starts from it tells the same again."""
    _await_end(running.pids["scheduler"])
    rows = _rows(Path(running.home) / "scheduler" / "journal.db", told.job_id)
    if rows != len(told.results):
        raise CommandError(
            f"{len(told.results)} results were acknowledged before the scheduler was killed, and "
            f"{rows} are in its journal"
        )
    again = bench_swarm.start(Path(running.home))
    with again.client() as client:
        after = list(client.results(told.job_id, follow=False))
    if _by_index(after) != _by_index(told.results):
        raise CommandError("after the kill and a new start the results are not what they were")


def _await_end(pid: int) -> None:
    """A killed process holds its locks until the system has taken it down."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(END_SECONDS_MAX)


def _by_index(results: Iterable[Result]) -> dict[int, object]:
    return {result.index: (result.state, result.value, result.digest) for result in results}


def _rows(journal: Path, job_id: str) -> int:
    query = "SELECT count(*) FROM results WHERE job = (SELECT number FROM jobs WHERE id = ?)"
    with contextlib.closing(sqlite3.connect(f"{journal.as_uri()}?mode=ro", uri=True)) as database:
        row: tuple[int] = database.execute(query, (job_id,)).fetchone()
        return row[0]


def run_processes(client: Client, count: int) -> float:
    """`/bin/true` in one job; tasks per second."""
    began = time.perf_counter()
    job = client.submit_job({"command": ["/bin/true"]}, count=count, name="bench")
    codes = [result.exit_code for result in client.results(job.id)]
    seconds = time.perf_counter() - began
    if codes != [0] * count:
        raise CommandError(f"{codes.count(0)} of {count} processes have succeeded")
    return count / seconds
