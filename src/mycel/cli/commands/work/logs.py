"""`mycel logs`: what tasks have written."""

from __future__ import annotations

import sys
from argparse import Namespace

from mycel.cli.arguments import connect, parser
from mycel.cli.id_prefixes import job_id, task_id
from mycel.cli.output_follower import Shown
from mycel.client import Client
from mycel.client.responses import LogPiece
from mycel.console.errors import UsageError
from mycel.console.tables import print_json, print_json_line
from mycel.console.terminal import Output


def logs(given: list[str]) -> int:
    options = parser(
        "logs",
        "Print what a task (JOB.N), or each task of a job, has written: exactly into files and "
        "pipes, and without control sequences but colours on a terminal.",
    )
    options.add_argument("id", metavar="ID")
    options.add_argument(
        "-f", "--follow", action="store_true", help="both streams, as they come, until it ends"
    )
    options.add_argument("--stderr", action="store_true", help="its errors alone")
    options.add_argument("--failed", action="store_true", help="of a job: only of what has failed")
    options.add_argument("--raw", action="store_true", help="exactly, on a terminal too")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        if "." not in chosen.id:
            job = client.job(job_id(client, chosen.id))
            if job.tasks.total != 1:
                return _of_job(client, job.id, chosen)
            chosen.id = f"{job.id}.0"
        task = task_id(client, chosen.id)
        if chosen.follow:
            only = "stderr" if chosen.stderr else None
            return follow_task(client, task, only, as_json=chosen.json, raw=chosen.raw)
        if chosen.json:
            print_json(client.logs(task))
            return 0
        written = client.log(task, "stderr" if chosen.stderr else "stdout")
        Output(raw=chosen.raw).write(sys.stdout, written)
        sys.stdout.flush()
    return 0


def follow_task(
    client: Client, task: str, only: str | None = None, *, as_json: bool, raw: bool = False
) -> int:
    shown = Shown(only, raw=raw)
    for piece in client.follow_logs(task):
        if as_json:
            text = piece.data.decode(errors="replace")
            about = {"attempt": piece.attempt, "stream": piece.stream, "text": text}
            print_json_line(about)
        else:
            shown.show(piece)
    return 0


def _of_job(client: Client, job: str, chosen: Namespace) -> int:
    """One task after another, each line with its task's number before it."""
    if chosen.follow:
        if chosen.failed:
            raise UsageError("what will fail nobody knows: leave --follow or --failed away")
        only = "stderr" if chosen.stderr else None
        Shown(only, prefixed=True, raw=chosen.raw).show_all(client.follow_logs(job))
        return 0
    shown = Shown(prefixed=True, raw=chosen.raw)
    for task in client.tasks(job=job, state="failed" if chosen.failed else None):
        if task.state == "queued":
            continue
        found = client.logs(task.id)
        if chosen.json:
            print_json_line({"id": task.id, "state": task.state, "logs": found})
            continue
        for stream in ("stderr",) if chosen.stderr else ("stdout", "stderr"):
            text: str = getattr(found, stream)
            if text:
                whole = text if text.endswith("\n") else f"{text}\n"
                shown.show(LogPiece(task.id, task.attempt, stream, whole.encode()))
    return 0
