"""What came of the sweep, and where the time went."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from mycel.client import Job, Result, Task
from mycel.console.tables import duration, parse_time, print_table

SHOWN = 8


class Loss(msgspec.Struct, frozen=True):
    worker: str
    tasks: list[int]
    """That it ran when it was killed."""
    at: float


class Story(msgspec.Struct, frozen=True):
    job: Job
    grid: list[dict[str, Any]]
    results: dict[int, Result]
    tasks: list[Task]
    names: dict[str, str]
    loss: Loss | None
    up_seconds: float
    job_seconds: float
    slots: int
    walls: list[str] = []
    """What holds the tasks of its workers."""

    def name(self, peer: str | None) -> str:
        return self.names.get(peer or "", peer or "")


class Times(msgspec.Struct, frozen=True):
    running: float
    """Of all tasks together, their last attempts."""
    lost: float
    """Of attempts that were not the last."""
    waiting_mean: float
    """From submission to the start of the last attempt."""
    idle: float
    """Slots that stood empty or waited: everything else."""


def times(story: Story) -> Times:
    running = lost = waiting = 0.0
    for task in story.tasks:
        if task.started_at is None or task.finished_at is None:
            continue
        running += parse_time(task.finished_at) - parse_time(task.started_at)
        waiting += parse_time(task.started_at) - parse_time(task.created_at)
        for attempt in task.attempts[:-1]:
            if attempt.started_at and attempt.ended_at:
                lost += parse_time(attempt.ended_at) - parse_time(attempt.started_at)
    idle = max(0.0, story.slots * story.job_seconds - running - lost)
    return Times(running, lost, waiting / max(1, len(story.tasks)), idle)


def best(story: Story) -> list[tuple[float, Result]]:
    scored = [
        (result.value["accuracy"], result)
        for result in story.results.values()
        if result.state == "succeeded"
    ]
    return sorted(scored, key=lambda one: (-one[0], one[1].index))


def failures(story: Story) -> list[tuple[str, int]]:
    """Why tasks did not succeed, the most frequent reason first."""
    reasons = Counter(
        (result.error or "no reason was given").strip()
        for result in story.results.values()
        if result.state != "succeeded"
    )
    return reasons.most_common()


def summary(story: Story) -> dict[str, Any]:
    spent = times(story)
    return {
        "job": story.job.id,
        "state": story.job.state,
        "tasks": len(story.tasks),
        "killed": None if story.loss is None else story.loss.worker,
        "rerun": [] if story.loss is None else story.loss.tasks,
        "failures": [{"error": error, "tasks": count} for error, count in failures(story)],
        "walls": story.walls,
        "per_worker": _per_worker(story),
        "best": [
            {**story.grid[result.index], "accuracy": score} for score, result in best(story)[:SHOWN]
        ],
        "up_seconds": round(story.up_seconds, 3),
        "job_seconds": round(story.job_seconds, 3),
        "running_seconds": round(spent.running, 3),
        "lost_seconds": round(spent.lost, 3),
        "waiting_seconds_mean": round(spent.waiting_mean, 3),
    }


def _per_worker(story: Story) -> dict[str, int]:
    counted = Counter(story.name(task.worker) for task in story.tasks)
    return dict(sorted(counted.items()))


def show(story: Story) -> None:
    failed = failures(story)
    if failed:
        total = sum(count for _, count in failed)
        print(f"\n{total} of {len(story.grid)} tasks did not succeed:")
        print_table(
            ("TASKS", "WHY"),
            [(str(count), last_line(error)) for error, count in failed[:SHOWN]],
        )
        for line in story.walls:
            print(f"Tasks are held by {line}")
        print("To see more: 'mycel up', 'mycel submit' with a job of yours, 'mycel logs TASK'.")
    scored = best(story)[:SHOWN]
    if scored:
        print(f"\nThe best {len(scored)} of {len(story.tasks)}:")
        print_table(
            ("ACCURACY", "TRAINING", "RATE", "UNITS", "MOMENTUM", "SEED", "WORKER", "TRY"),
            [_row(story, score, result) for score, result in scored],
        )
    spent = times(story)
    print("\nWhere the time went:")
    print_table(
        ("WHAT", "TIME", ""),
        [
            ("starting the swarm", duration(story.up_seconds), ""),
            ("the job", duration(story.job_seconds), f"{len(story.tasks)} tasks"),
            ("running", duration(spent.running), _share(spent.running, story)),
            ("lost with the worker", duration(spent.lost), _share(spent.lost, story)),
            ("idle and overhead", duration(spent.idle), _share(spent.idle, story)),
            ("waiting in the queue", duration(spent.waiting_mean), "a task, in the mean"),
        ],
    )
    print("\nWho did it:")
    print_table(
        ("WORKER", "TASKS", ""),
        [
            (name, str(count), "killed" if story.loss and story.loss.worker == name else "")
            for name, count in _per_worker(story).items()
        ],
    )


def last_line(error: str) -> str:
    """Of a traceback, what it is about."""
    return error.rpartition("\n")[2]


def _share(seconds: float, story: Story) -> str:
    share = seconds / (story.slots * story.job_seconds)
    return f"{share:.0%} of {story.slots} slots' time"


def _row(story: Story, score: float, result: Result) -> tuple[str, ...]:
    chosen = story.grid[result.index]
    return (
        f"{score:.1%}",
        f"{result.value['training_accuracy']:.1%}",
        f"{chosen['learning_rate']:g}",
        str(chosen["hidden"]),
        f"{chosen['momentum']:g}",
        str(chosen["seed"]),
        story.name(result.worker),
        str(result.attempt),
    )
