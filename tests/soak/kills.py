"""Kills of the scheduler and of workers at random moments, under load."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final

from mycel.client import ClientError
from tests.end_to_end.swarm import Swarm, eventually

from .load import Load
from .verdict import Execution, read_executions

OUT_MIN: Final = 50
"""Tasks that run or are assigned when a kill happens."""
QUEUED_MIN: Final = 50
MOMENT_SECONDS_MAX: Final = 0.6
SUBMISSION_SECONDS: Final = 0.008
RERUN_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 30.0


class SchedulerKill:
    def __init__(self, at: float, out: int, queued: int, up_seconds: float) -> None:
        self.at = at
        self.out = out
        self.queued = queued
        self.up_seconds = up_seconds


class WorkerKill:
    def __init__(self, name: str, at: float, reruns: list[float], never: list[str]) -> None:
        self.name = name
        self.at = at
        self.reruns = reruns
        """Seconds from the kill to the moment at which each lost task ran elsewhere."""
        self.never = never
        """Lost tasks that did not."""


def _busy(swarm: Swarm) -> tuple[int, int] | None:
    try:
        stats = swarm.client.stats()
    except ClientError:
        return None
    out, queued = int(stats["tasks_running"]), int(stats["queue_depth"])
    return (out, queued) if out >= OUT_MIN and queued >= QUEUED_MIN else None


def random_moment(swarm: Swarm, chance: random.Random) -> tuple[int, int]:
    """Returns at a random moment at which enough is under way."""
    while True:
        eventually(lambda: _busy(swarm), "enough tasks are out and queued", 60.0)
        time.sleep(chance.uniform(0.0, MOMENT_SECONDS_MAX))
        busy = _busy(swarm)
        if busy is not None:
            return busy


def kill_scheduler(swarm: Swarm, chance: random.Random, load: Load) -> SchedulerKill:
    """Every other time in the middle of a submission."""
    out, queued = random_moment(swarm, chance)
    if chance.random() < 0.5 and load.is_submitting.wait(2.0):
        time.sleep(chance.uniform(0.0, SUBMISSION_SECONDS))
    at = swarm.kill("scheduler")
    began = time.monotonic()
    swarm.up()
    return SchedulerKill(at, out, queued, time.monotonic() - began)


def kill_worker(swarm: Swarm, chance: random.Random, log: Path, load: Load) -> WorkerKill:
    """One that has work: a worker that has only just come back loses nothing."""
    busy: list[str] = []
    while not busy:
        random_moment(swarm, chance)
        busy = sorted(one.name for one in swarm.client.workers() if one.load.running)
    name = chance.choice(busy)
    at = swarm.kill(name)
    lost = {
        task: executions[-1]
        for task, executions in read_executions(log).items()
        if executions[-1].worker == name
        and executions[-1].computed is None
        and task not in load.asked_to_cancel
    }
    reruns: dict[str, float] = {}

    def look() -> bool:
        found = read_executions(log)
        for task in lost:
            again = _rerun(found[task], lost[task])
            if again is not None:
                reruns.setdefault(task, again.began - at)
        return len(reruns) == len(lost)

    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not look() and time.monotonic() < ends_at:
        time.sleep(0.1)
    never = [task for task in lost if task not in reruns]
    swarm.up()
    return WorkerKill(name, at, sorted(reruns.values()), never)


def _rerun(executions: list[Execution], lost: Execution) -> Execution | None:
    """By the nonce: an interpreter may outlive its worker by a moment, and finish."""
    place = next(place for place, one in enumerate(executions) if one.nonce == lost.nonce)
    return next((one for one in executions[place + 1 :] if one.worker != lost.worker), None)
