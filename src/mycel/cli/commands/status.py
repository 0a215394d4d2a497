"""`mycel status`: who one is, what the swarm does, and what is wrong, at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mycel.cli.arguments import connect, parser
from mycel.client import Client, Job, Worker
from mycel.console.tables import Column, duration, print_json, print_table

JOBS_SHOWN = 5


def status(given: list[str]) -> int:
    options = parser("status", "Show how the swarm is: workers, tasks, your jobs that run.")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        who: dict[str, Any] = client.get("/api/v1/token")
        totals = client.stats()
        workers = client.workers()
        running = list(client.jobs(state="running", limit=JOBS_SHOWN + 1))
        if chosen.json:
            facts = {"api": client.api, "user": who["user"], "stats": totals}
            print_json({**facts, "workers": workers, "jobs_running": running})
            return 0
        _print(client, who, totals, workers, running)
    return 0


def _print(
    client: Client,
    who: dict[str, Any],
    totals: dict[str, Any],
    workers: list[Worker],
    running: list[Job],
) -> None:
    rows = [
        ("workers", _workers(workers)),
        ("cores", _cores(workers)),
        ("tasks", _tasks(totals)),
    ]
    for job in running[:JOBS_SHOWN]:
        done = f"{job.tasks.ended:,} of {job.tasks.total:,} tasks"
        failed = f", {job.tasks.failed:,} failed" if job.tasks.failed else ""
        rows.append(("job", f"{job.id}  {job.name or '-'}: {done}{failed}"))
    if len(running) > JOBS_SHOWN:
        rows.append(("", "and more: mycel jobs --state running"))
    rows += [("trouble", text) for text in _troubles(workers)]
    about = f"{client.api}, as {who['user']}"
    print_table(("SWARM", Column(about, wraps=True)), rows)


def _workers(workers: list[Worker]) -> str:
    counts = Counter(one.state if one.accepting else "closed" for one in workers)
    said = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    return f"{len(workers)}: {said}" if workers else "none"


def _cores(workers: list[Worker]) -> str:
    every = sum(one.capabilities.get("cpu_cores", 0) for one in workers)
    free = sum(one.load.cpu_cores_free or 0 for one in workers)
    return f"{free:g} of {every:g} free"


def _tasks(totals: dict[str, Any]) -> str:
    said = f"{totals['tasks_running']:,} running, {totals['queue_depth']:,} queued"
    rate, mean = totals["completion_rate"], totals["average_latency_seconds"]
    if rate:
        said += f"; {rate:.1f}/s end"
    if rate and mean:
        said += f", after {duration(mean)}"
    return said


def _troubles(workers: list[Worker]) -> Iterator[str]:
    for one in workers:
        if not one.accepting and one.closed_for:
            yield f"{one.name} takes no work: {one.closed_for}"
        elif one.state not in ("healthy", "known"):
            yield f"{one.name} is {one.state}"
