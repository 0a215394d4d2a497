"""`mycel follow`, `mycel wait`, `mycel rerun`: jobs that were submitted before."""

from __future__ import annotations

import time

from mycel.cli.arguments import connect, parser
from mycel.cli.id_prefixes import any_id, job_id
from mycel.cli.job_follower import follow_job
from mycel.client import Client, Job, Task
from mycel.client.errors import WaitTimedOut
from mycel.console.tables import print_json

from .logs import follow_task

TIMED_OUT = 124


def follow(given: list[str]) -> int:
    options = parser(
        "follow",
        "Print a job's results as they come, the output of its longer tasks, and how far it is; or "
        "what a task (JOB.N) writes.",
    )
    options.add_argument("id", metavar="ID")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        identifier = any_id(client, chosen.id)
        if "." in identifier:
            return follow_task(client, identifier, as_json=chosen.json)
        return follow_job(client, identifier, as_json=chosen.json)


def wait(given: list[str]) -> int:
    options = parser("wait", "Wait until jobs and tasks (JOB.N) have ended.")
    options.add_argument("id", metavar="ID", nargs="+")
    options.add_argument(
        "--timeout", type=float, metavar="S", help=f"then end with {TIMED_OUT}; they go on"
    )
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        ids = [any_id(client, text) for text in chosen.id]
        if len(ids) == 1 and "." not in ids[0] and chosen.timeout is None and not chosen.json:
            return follow_job(client, ids[0], results=False)
        return _wait(client, ids, chosen.timeout, as_json=chosen.json)


def _wait(client: Client, ids: list[str], timeout: float | None, *, as_json: bool) -> int:
    ends_at = None if timeout is None else time.monotonic() + timeout
    ended: list[Job | Task] = []
    for one in ids:
        left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
        try:
            ended.append(client.wait(one, left) if "." in one else client.wait_job(one, left))
        except WaitTimedOut as error:
            print(f"mycel: {error}")
            return TIMED_OUT
        if not as_json:
            print(f"{one}  {ended[-1].state}")
    if as_json:
        print_json({"items": ended})
    return 0 if all(one.state == "succeeded" for one in ended) else 1


def rerun(given: list[str]) -> int:
    options = parser(
        "rerun",
        "Submit a job once more, as a new one. A stage whose results another one takes runs again "
        "with it.",
    )
    options.add_argument("job", metavar="JOB")
    options.add_argument(
        "--failed", action="store_true", help="only its tasks that have failed or were cancelled"
    )
    how = options.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="until the new job has ended")
    how.add_argument("--follow", action="store_true", help="as 'mycel follow' does")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        job = client.rerun(job_id(client, chosen.job), only_failed=chosen.failed)
        if chosen.follow or chosen.wait:
            return follow_job(client, job.id, results=chosen.follow, as_json=chosen.json)
    print_json(job) if chosen.json else print(job.id)
    return 0
