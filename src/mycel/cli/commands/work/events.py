"""`mycel events`: what happened, and what happens."""

from __future__ import annotations

import sys

from mycel.cli.arguments import connect, parser
from mycel.cli.id_prefixes import job_id, task_id
from mycel.client.event_stream import Event
from mycel.console.tables import print_json_line

_SHOWN_FIRST = ("at", "kind", "task_id", "job_id", "worker", "name")


def main(given: list[str]) -> int:
    options = parser(
        "events",
        "Print how tasks and jobs have ended; with -f, go on with all that happens, as it does.",
    )
    options.add_argument("-f", "--follow", action="store_true", help="go on until interrupted")
    options.add_argument("--after", type=int, metavar="ID", help="only what came after this event")
    options.add_argument("--job", metavar="ID", help="only of this job")
    options.add_argument("--task", metavar="ID", help="only of this task")
    options.add_argument(
        "--kinds", metavar="KINDS", help="only these, such as 'task.failed,worker.*'"
    )
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        events = client.events(
            follow=chosen.follow,
            after=chosen.after,
            job=None if chosen.job is None else job_id(client, chosen.job),
            task=None if chosen.task is None else task_id(client, chosen.task),
            kinds=chosen.kinds,
        )
        for event in events:
            if chosen.json:
                print_json_line({"id": event.id, **event.data, "kind": event.kind})
            else:
                print(_line(event))
            sys.stdout.flush()
    return 0


def _line(event: Event) -> str:
    data = event.data
    subject = data.get("task_id") or data.get("job_id") or data.get("name") or ""
    rest = [
        f"{name}={value}"
        for name, value in data.items()
        if name not in _SHOWN_FIRST and value not in (None, "")
    ]
    worker = data.get("worker")
    if worker and subject:
        rest.insert(0, f"on {data.get('name') or worker[-8:]}")
    return "  ".join([data.get("at", ""), f"{event.kind:<14}", subject or worker or "", *rest])
