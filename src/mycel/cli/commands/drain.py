"""`mycel drain`, `mycel resume`: whether a worker takes new work."""

from __future__ import annotations

import time
from typing import Final

from mycel.cli.arguments import connect, parser
from mycel.cli.worker_names import worker_id
from mycel.client import Client, Worker
from mycel.console.tables import print_json

LOOK_SECONDS: Final = 0.2


def drain(given: list[str]) -> int:
    options = parser("drain", "Let a worker take no new work; what it runs goes on.")
    options.add_argument("worker", metavar="WORKER", help="its name or peer id")
    options.add_argument(
        "--grace",
        type=float,
        metavar="S",
        help="what still runs after so many seconds goes back to the queue, without counting",
    )
    options.add_argument("--wait", action="store_true", help="until nothing runs there any more")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        worker = client.drain(worker_id(client, chosen.worker), chosen.grace)
        while chosen.wait and worker.load.running:
            time.sleep(LOOK_SECONDS)
            worker = _again(client, worker)
    _say(worker, chosen.json)
    return 0


def resume(given: list[str]) -> int:
    options = parser("resume", "Let a worker that was drained take work again.")
    options.add_argument("worker", metavar="WORKER", help="its name or peer id")
    chosen = options.parse_args(given)
    with connect(chosen) as client:
        worker = client.resume(worker_id(client, chosen.worker))
    _say(worker, chosen.json)
    return 0


def _again(client: Client, worker: Worker) -> Worker:
    """As it is now; one that is gone runs nothing."""
    found = [one for one in client.workers() if one.peer_id == worker.peer_id]
    if found:
        return found[0]
    worker.load.running = 0
    return worker


def _say(worker: Worker, as_json: bool) -> None:
    if as_json:
        print_json(worker)
    elif worker.accepting:
        print(f"{worker.name} takes new work")
    else:
        left = worker.load.running
        running = f"; {left} still run there" if left else ""
        print(f"{worker.name} takes no new work: {worker.closed_for}{running}")
