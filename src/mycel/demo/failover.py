"""The demo: a swarm of five processes, a sweep, a worker killed in the middle."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from mycel.client import Client, Job, Result
from mycel.console.errors import CommandError
from mycel.console.tables import print_json
from mycel.local import local_swarm
from mycel.local.local_swarm import Running

from . import sweep, sweep_report
from .demo_home import temporary_home
from .progress import Progress, progress
from .sweep_report import Loss, Story

WORKERS = 3
KILL_AFTER = 1 / 3
"""Of all tasks: then a worker that runs some is killed."""


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mycel demo", description="A sweep on a swarm of this machine that loses a worker."
    )
    parser.add_argument("--json", action="store_true", help="print a summary as JSON")
    options = parser.parse_args(given)
    with temporary_home() as home:
        story = _tell(home, progress(sys.stderr if options.json else sys.stdout))
    if options.json:
        print_json(sweep_report.summary(story))
    else:
        sweep_report.show(story)
        print("\nThe swarm is stopped; nothing is left running.")
    return 0 if story.job.state == "succeeded" else 1


def _tell(home: Path, shown: Progress) -> Story:
    began = time.monotonic()
    running, _ = local_swarm.up(home, WORKERS, 0)
    up_seconds = time.monotonic() - began
    roles = ", ".join(f"{name} ({pid})" for name, pid in running.pids.items())
    shown.say(f"Started in {up_seconds:.1f} s, each a process of its own: {roles}")
    walls = running.walls_lines()
    for line in walls:
        shown.say(f"Tasks are held by {line}")
    with running.client() as client:
        grid = sweep.grid()
        names = _names(client)
        job = client.submit_job(
            {"python": "mycel.demo.sweep:train"}, arguments=grid, name="hyper-parameter sweep"
        )
        shown.say(f"Submitted job {job.id}: {len(grid)} networks to train and score")
        submitted = time.monotonic()
        results, loss = _follow(client, running, job, names, shown, len(grid))
        job_seconds = time.monotonic() - submitted
        return Story(
            job=client.job(job.id),
            grid=grid,
            results=results,
            tasks=list(client.tasks(job=job.id)),
            names=names,
            loss=loss,
            up_seconds=up_seconds,
            job_seconds=job_seconds,
            slots=WORKERS,
            walls=walls,
        )


def _names(client: Client) -> dict[str, str]:
    """Of the workers, once they are all there. Raises `CommandError` if none of them takes
    tasks."""
    ends_at = time.monotonic() + 10
    while True:
        workers = client.workers()
        if len(workers) >= WORKERS or time.monotonic() > ends_at:
            if workers and not any(worker.accepting for worker in workers):
                raise CommandError(f"no worker takes tasks: {workers[0].closed_for}")
            return {worker.peer_id: worker.name for worker in workers}
        time.sleep(0.05)


def _follow(
    client: Client,
    running: Running,
    job: Job,
    names: dict[str, str],
    shown: Progress,
    total: int,
) -> tuple[dict[int, Result], Loss | None]:
    results: dict[int, Result] = {}
    loss: Loss | None = None
    with shown.bar(total):
        for result in client.results(job.id):
            results[result.index] = result
            shown.advance(len(results), total)
            if loss is not None and result.index in loss.tasks:
                where = names.get(result.worker or "", "another worker")
                shown.say(
                    f"  task {result.index}, lost with {loss.worker}, has finished on {where} "
                    f"(attempt {result.attempt}, {time.monotonic() - loss.at:.1f} s after the kill)"
                )
            elif loss is None and len(results) >= total * KILL_AFTER:
                loss = _kill_one(client, running, job, names, shown)
    return results, loss


def _kill_one(
    client: Client, running: Running, job: Job, names: dict[str, str], shown: Progress
) -> Loss | None:
    """The worker that runs the most; nobody if at this moment none does."""
    tasks = [task for task in client.tasks(job=job.id, state="running") if task.worker in names]
    if not tasks:
        return None
    peer, _ = Counter(task.worker for task in tasks).most_common(1)[0]
    assert peer is not None
    name = names[peer]
    lost = [int(task.id.partition(".")[2]) for task in tasks if task.worker == peer]
    os.kill(running.pids[name], signal.SIGKILL)
    listed = ", ".join(str(index) for index in lost)
    shown.say(f"Killed {name} (SIGKILL, pid {running.pids[name]}) while it ran task {listed}")
    return Loss(name, lost, time.monotonic())
