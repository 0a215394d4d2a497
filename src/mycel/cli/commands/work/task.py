"""`mycel explain`, `mycel cancel`: about tasks and jobs."""

from __future__ import annotations

import sys

from mycel.cli.arguments import connect, parser
from mycel.cli.id_prefixes import any_id, task_id
from mycel.client.errors import ClientError
from mycel.console.errors import CommandError
from mycel.console.tables import print_json


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
    if found.ranking:
        print("first in order, and what speaks against each, in seconds:")
    for one in found.ranking:
        eta = "?" if one.eta_seconds is None else f"{one.eta_seconds:.0f} s"
        room = "has room" if one.eta_seconds == 0.0 else f"has room in {eta}"
        terms = ", ".join(f"{name} {value:.3g}" for name, value in one.terms.items() if value)
        print(f"  {one.name or one.peer}: {one.seconds:.3g} ({terms or 'nothing'}); {room}")
    if not found.workers_known:
        print("  no worker is known")
    return 0


def cancel(given: list[str]) -> int:
    options = parser("cancel", "Cancel tasks (JOB.N) and whole jobs.")
    options.add_argument("id", metavar="ID", nargs="+")
    chosen = options.parse_args(given)
    cancelled, refused = [], 0
    with connect(chosen) as client:
        ids = [any_id(client, text) for text in chosen.id]  # all, or none
        for one in ids:
            try:
                cancelled.append(client.cancel(one))
            except ClientError as error:
                if len(ids) == 1:
                    raise
                refused += 1
                print(f"mycel: {error}", file=sys.stderr)
                continue
            if not chosen.json:
                print(f"{cancelled[-1].id} is {cancelled[-1].state}")
    if chosen.json:
        print_json(cancelled[0] if len(ids) == 1 else {"items": cancelled})
    if refused:
        raise CommandError(f"{refused} of {len(ids)} could not be cancelled")
    return 0
