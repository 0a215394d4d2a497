"""`mycel logs`, `mycel explain`, `mycel cancel`: about one task, or one job."""

from __future__ import annotations

import sys

from mycel.cli.arguments import connect, parser
from mycel.cli.id_prefixes import job_id, task_id
from mycel.cli.output_follower import Shown
from mycel.client import Client
from mycel.console.tables import print_json, print_json_line
from mycel.console.terminal import Output


def logs(given: list[str]) -> int:
    options = parser(
        "logs",
        "Print what a task has written: exactly into files and pipes, and without control "
        "sequences but colours on a terminal.",
    )
    options.add_argument("task", metavar="TASK")
    options.add_argument(
        "-f", "--follow", action="store_true", help="both streams, as they come, until it ends"
    )
    options.add_argument("--stderr", action="store_true", help="its errors alone")
    options.add_argument("--raw", action="store_true", help="exactly, on a terminal too")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        task = task_id(client, chosen.task)
        if chosen.follow:
            return _follow(client, task, chosen.stderr, chosen.json, chosen.raw)
        if chosen.json:
            print_json(client.logs(task))
            return 0
        written = client.log(task, "stderr" if chosen.stderr else "stdout")
        Output(raw=chosen.raw).write(sys.stdout, written)
        sys.stdout.flush()
    return 0


def _follow(client: Client, task: str, only_errors: bool, as_json: bool, raw: bool) -> int:
    shown = Shown("stderr" if only_errors else None, raw=raw)
    for piece in client.follow_logs(task):
        if as_json:
            text = piece.data.decode(errors="replace")
            about = {"attempt": piece.attempt, "stream": piece.stream, "text": text}
            print_json_line(about)
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
    # What a task's error says stands apart from what we say.
    summary = found.summary.strip().replace("\n", "\n    ")
    print(f"{found.job_id}.{found.index} is {found.state}{reason}: {summary}")
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
