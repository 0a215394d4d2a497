"""`mycel jobs`, `mycel tasks`."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar

from mycel.cli.arguments import connect, parser
from mycel.cli.command_parser import CommandParser
from mycel.cli.id_prefixes import job_id, shown_id
from mycel.cli.task_texts import what_runs
from mycel.cli.worker_names import names_of, shown_worker
from mycel.client import Job, Task
from mycel.client.responses import TaskCounts
from mycel.console.errors import UsageError
from mycel.console.tables import Column, age, elapsed, print_json, print_table

SHOWN: Final = 100
_AGO: Final = re.compile(r"(\d{1,6})\s*(s|m|min|h|d|w)")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}

_Item = TypeVar("_Item")


def add_filters(options: CommandParser) -> None:
    options.add_argument("--state", metavar="STATE", help="only those in this state")
    options.add_argument("--name", metavar="NAME", help="only of jobs of this name; * and ? count")
    options.add_argument("--user", metavar="USER", help="only of this user's jobs")
    options.add_argument(
        "--since", metavar="TIME", help="only of jobs since then: 30m, 2h, 7d, or 2030-01-31T12:00"
    )
    options.add_argument("--until", metavar="TIME", help="only of jobs until then")
    options.add_argument("--limit", type=int, default=SHOWN, metavar="N", help=f"rows ({SHOWN})")


def filters_of(chosen: argparse.Namespace) -> dict[str, str | None]:
    return {
        "state": chosen.state,
        "name": chosen.name,
        "user": chosen.user,
        "since": _moment("--since", chosen.since),
        "until": _moment("--until", chosen.until),
    }


def _moment(option: str, text: str | None) -> str | None:
    """As the API takes it: a length of time is counted from now, and a time without a zone is of
    this machine's."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        seconds = int(ago[1]) * _UNIT_SECONDS[ago[2]]
        return datetime.fromtimestamp(max(0.0, time.time() - seconds), UTC).isoformat()
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text!r} is no time: write 30m, 2h, 7d, or 2030-01-31T12:00"
        ) from None


def first_of(found: Iterable[_Item], limit: int) -> tuple[list[_Item], bool]:
    """And whether there are more."""
    items = list(itertools.islice(found, limit + 1))
    return items[:limit], len(items) > limit


def say_more(more: bool, limit: int) -> None:
    if more:
        sys.stdout.flush()
        print(f"mycel: there are more than these {limit}: --limit N shows N", file=sys.stderr)


def jobs(given: list[str]) -> int:
    options = parser("jobs", "List jobs, newest first.")
    add_filters(options)
    chosen = options.parse_args(given)
    limit = max(1, chosen.limit)
    with connect(chosen) as client:
        found, more = first_of(client.jobs(limit=limit + 1, **filters_of(chosen)), limit)
    if chosen.json:
        print_json({"items": found, "more": more})
        return 0
    print_table(
        (
            "JOB",
            Column("NAME", least=24),
            Column("USER", least=6, leaves=0 if len({job.user for job in found}) > 1 else 9),
            "STATE",
            Column("TASKS", least=12),
            "AGE",
            Column("TOOK", leaves=1),
        ),
        [
            (
                shown_id(job.id),
                job.name,
                job.user,
                job.state,
                _counts(job.tasks) + _stages(job),
                age(job.created_at),
                elapsed(job.created_at, job.finished_at),
            )
            for job in found
        ],
    )
    say_more(more, limit)
    return 0


def _counts(tasks: TaskCounts) -> str:
    parts = [f"{tasks.ended}/{tasks.total}"]
    parts += [f"{tasks.running} running"] if tasks.running else []
    parts += [f"{tasks.failed} failed"] if tasks.failed else []
    parts += [f"{tasks.cancelled} cancelled"] if tasks.cancelled else []
    return ", ".join(parts)


def _stages(job: Job) -> str:
    """The stages that something happens in, or is to happen."""
    running = [
        f"{one.name} {one.ended}/{one.tasks}" for one in job.stages if one.state == "running"
    ]
    return f" ({', '.join(running)})" if running else ""


def tasks(given: list[str]) -> int:
    options = parser("tasks", "List tasks, the newest job's first.")
    options.add_argument("job", nargs="?", metavar="JOB", help="only this job's")
    options.add_argument("--job", dest="of_job", metavar="JOB", help="the same")
    options.add_argument("--stage", metavar="STAGE", help="only of this stage")
    add_filters(options)
    chosen = options.parse_args(given)
    limit = max(1, chosen.limit)
    named = chosen.job or chosen.of_job
    with connect(chosen) as client:
        job = None if named is None else job_id(client, named)
        filters = {**filters_of(chosen), "stage": chosen.stage, "job": job}
        found, more = first_of(client.tasks(limit=limit + 1, **filters), limit)
        names = {} if chosen.json else names_of(client.workers())
    if chosen.json:
        print_json({"items": found, "more": more})
        return 0
    print_tasks(found, names)
    say_more(more, limit)
    return 0


def print_tasks(found: list[Task], names: dict[str, str]) -> None:
    print_table(
        (
            "TASK",
            "STATE",
            Column("TRY", leaves=4),
            Column("DONE", leaves=0 if any(task.progress is not None for task in found) else 5),
            Column("WORKER", least=8, leaves=1),
            Column("AGE", leaves=3),
            Column("RAN", leaves=2),
            Column("WHAT", least=36),
        ),
        [
            (
                shown_id(task.id),
                task.state,
                str(task.attempt),
                "-" if task.progress is None else f"{task.progress:.0%}",
                shown_worker(task.worker, names),
                age(task.created_at),
                elapsed(task.started_at, task.finished_at),
                _what(task),
            )
            for task in found
        ],
    )


def _what(task: Task) -> str:
    prefix = f"[{task.stage}] " if task.stage else ""
    what = prefix + what_runs(task)
    if task.state == "queued" and task.reason:
        return f"{what} ({task.reason})"
    return f"{what}: {_line(task.error)}" if task.error else what


def _line(text: str) -> str:
    return " ".join(text.split())
