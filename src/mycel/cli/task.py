"""`mycel logs`, `mycel explain`, `mycel cancel`: about one task, or one job."""

from __future__ import annotations

import sys

import msgspec

from mycel.client import Client

from .arguments import connect, parser
from .following import Shown
from .identifiers import job_id, task_id
from .output import print_json


def logs(given: list[str]) -> int:
    options = parser("logs", "Print what a task has written, exactly.")
    options.add_argument("task", metavar="TASK")
    options.add_argument(
        "-f", "--follow", action="store_true", help="both streams, as they come, until it ends"
    )
    options.add_argument("--stderr", action="store_true", help="its errors alone")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        task = task_id(client, chosen.task)
        if chosen.follow:
            return _follow(client, task, chosen.stderr, chosen.json)
        if chosen.json:
            print_json(client.logs(task))
            return 0
        sys.stdout.buffer.write(client.log(task, "stderr" if chosen.stderr else "stdout"))
        sys.stdout.flush()
    return 0


def _follow(client: Client, task: str, only_errors: bool, as_json: bool) -> int:
    shown = Shown("stderr" if only_errors else None)
    for piece in client.follow_logs(task):
        if as_json:
            text = piece.data.decode(errors="replace")
            about = {"attempt": piece.attempt, "stream": piece.stream, "text": text}
            print(msgspec.json.encode(about).decode(), flush=True)
        else:
            shown.show(piece)
    return 0


def explain(given: list[str]) -> int:
    options = parser("explain", "Say why a task is where it is.")
    options.add_argument("task", metavar="TASK")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        found = client.explain(task_id(client, chosen.task))
    if chosen.json:
        print_json(found)
        return 0
    reason = f" ({found.reason})" if found.reason else ""
    print(f"{found.job_id}.{found.index} is {found.state}{reason}: {found.summary}")
    for obstacle in found.obstacles:
        more = obstacle.count - len(obstacle.workers)
        who = ", ".join(obstacle.workers)
        if more > 0:
            who = f"{obstacle.count} workers ({who} and {more} more)"
        print(f"  {who}: {obstacle.reason}{' (for now)' if obstacle.temporary else ''}")
    if not found.workers_known:
        print("  no worker is known")
    return 0


def cancel(given: list[str]) -> int:
    options = parser("cancel", "Cancel a task (JOB.N) or a whole job.")
    options.add_argument("id", metavar="ID")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        find = task_id if "." in chosen.id else job_id
        cancelled = client.cancel(find(client, chosen.id))
    if chosen.json:
        print_json(cancelled)
    else:
        print(f"{cancelled.id} is {cancelled.state}")
    return 0
