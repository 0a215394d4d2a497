"""`mycel show ID`: all that there is to know of a job or a task, for people."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mycel.cli.arguments import connect, parser
from mycel.cli.id_prefixes import any_id
from mycel.cli.task_texts import what_runs
from mycel.cli.worker_names import names_of, shown_worker
from mycel.client import Client, Job, Task
from mycel.client.responses import Attempt
from mycel.console.tables import Column, age, elapsed, print_json, print_table, size

from .lists import print_tasks

TASKS_SHOWN = 20
TEXT_SHOWN = 2000


def show(given: list[str]) -> int:
    options = parser("show", "Show a job, or a task (JOB.N), in full.")
    options.add_argument("id", metavar="ID")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        identifier = any_id(client, chosen.id)
        if chosen.json:
            kind = "tasks" if "." in identifier else "jobs"
            print_json(client.get(f"/api/v1/{kind}/{identifier}"))
        elif "." in identifier:
            _show_task(client, client.task(identifier))
        else:
            _show_job(client, client.job(identifier))
    return 0


def _facts(rows: Iterator[tuple[str, str]]) -> None:
    print_table(("FACT", Column("VALUE", wraps=True)), [row for row in rows if row[1]])


def _show_job(client: Client, job: Job) -> None:
    _facts(_job_facts(job))
    if job.stages:
        print()
        print_table(
            ("STAGE", "STATE", "TASKS", "SUCCEEDED", "FAILED", "CANCELLED", Column("NEEDS", 8)),
            [
                (
                    one.name,
                    one.state,
                    f"{one.tasks:,}",
                    f"{one.succeeded:,}",
                    f"{one.failed:,}",
                    f"{one.cancelled:,}",
                    ", ".join(one.needs) or "-",
                )
                for one in job.stages
            ],
        )
    names = names_of(client.workers())
    for state in ("failed", "running"):
        found = list(client.tasks(job=job.id, state=state, limit=TASKS_SHOWN))
        if found:
            print(f"\n{state}, the first {len(found)}:" if len(found) > 1 else f"\n{state}:")
            print_tasks(found, names)


def _job_facts(job: Job) -> Iterator[tuple[str, str]]:
    counts = job.tasks
    yield "job", job.id
    yield "name", job.name
    yield "user", job.user
    yield "state", job.state if job.closed else f"{job.state}, more tasks may come"
    kinds = ("queued", "running", "succeeded", "failed", "cancelled")
    said = [f"{getattr(counts, one):,} {one}" for one in kinds if getattr(counts, one)]
    yield "tasks", f"{counts.total:,}: {', '.join(said)}" if said else f"{counts.total:,}"
    yield "submitted", f"{job.created_at} ({age(job.created_at)})"
    yield "ended", job.finished_at or ""
    yield "took", elapsed(job.created_at, job.finished_at)


def _show_task(client: Client, task: Task) -> None:
    names = names_of(client.workers())
    _facts(_task_facts(task))
    if task.attempts:
        print()
        columns = ("TRY", "STATE", Column("WORKER", 8), "STARTED", "RAN", Column("WHY", wraps=True))
        print_table(columns, [_attempt_row(one, names) for one in task.attempts])
    if task.error:
        print(f"\n{task.error.rstrip()}")


def _attempt_row(attempt: Attempt, names: dict[str, str]) -> tuple[str, ...]:
    return (
        str(attempt.number),
        attempt.state,
        shown_worker(attempt.worker, names),
        age(attempt.started_at) or "-",
        elapsed(attempt.started_at, attempt.ended_at) or "-",
        " ".join((attempt.error or "").strip().splitlines()[-1:]) or "-",
    )


def _task_facts(task: Task) -> Iterator[tuple[str, str]]:
    yield "task", task.id
    yield "name", task.name
    yield "stage", task.stage
    yield "state", f"{task.state} ({task.reason})" if task.reason else task.state
    yield "code", task.code or ""
    yield "runs", what_runs(task)
    yield "asks for", _json({k: v for k, v in task.requirements.items() if v})
    yield "priority", str(task.priority) if task.priority else ""
    if task.progress is not None:
        yield "progress", f"{task.progress:.0%} {task.message}".rstrip()
    yield "metrics", _json(task.metrics) if task.metrics else ""
    yield "submitted", f"{task.created_at} ({age(task.created_at)})"
    yield "ran", elapsed(task.started_at, task.finished_at)
    yield "next try", task.next_try_at or ""
    result = task.result
    if result is not None:
        yield "exit code", "" if result.exit_code is None else str(result.exit_code)
        yield "result", size(result.size) if result.size else _json(result.json, result.text)
    left = task.outputs
    if left is not None and left.digest:
        where = f", with worker {left.worker[-8:]}" if left.worker else ""
        yield "left", f"{left.files} files, {size(left.size)}{where}"
    elif left is not None:
        yield "is to leave", ", ".join(left.patterns)


def _json(value: object, text: str | None = None) -> str:
    said = text if text is not None else msgspec.json.encode(value).decode() if value else ""
    return said if len(said) <= TEXT_SHOWN else said[: TEXT_SHOWN - 1] + "…"
