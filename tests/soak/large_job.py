"""One large job, with the scheduler killed on the way: every result is there exactly once.

    python tests/soak/large_job.py                 100,000 tasks, three kills
    python tests/soak/large_job.py --tasks 20000 --json

The first kill meets the submission, batch by batch; the others meet the results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:  # run by its path
    sys.path.insert(0, str(REPOSITORY))

from mycel.bench.process_memory import pss_mb  # noqa: E402
from mycel.client import Client, ClientError  # noqa: E402
from mycel.core.identifiers import ulid  # noqa: E402
from tests.end_to_end.swarm import Swarm, eventually  # noqa: E402

TASKS: Final = 100_000
KILLS: Final = 3
FACTOR: Final = 7
END_SECONDS: Final = 300.0
BATCH_TASKS: Final = 5_000
SETTINGS: Final = "[worker]\ncpu_cores = 2\n"

Say = Callable[[str], None]


class LargeJob:
    def __init__(self, swarm: Swarm, tasks: int, kills: int, say: Say) -> None:
        self.swarm = swarm
        self.tasks = tasks
        self.kills = kills
        self.say = say
        self.job = ulid(time.time_ns() // 1_000_000, bytes(10))
        self.complaints: list[str] = []
        self.figures: dict[str, Any] = {"large_job_tasks": tasks, "large_job_kills": kills}
        self._sent_again = 0

    def run(self) -> list[str]:
        """The complaints; none is good."""
        began = time.monotonic()
        self.swarm.up(2)
        sending = threading.Thread(target=self._send, name="submission")
        sending.start()
        ready_seconds, memory = [], []
        for number in range(self.kills):
            self._wait_for(self.tasks * number // self.kills + 1)
            ended = self._ended()
            self.swarm.kill("scheduler")
            started = time.monotonic()
            self.swarm.up()
            ready_seconds.append(time.monotonic() - started)
            memory.append(pss_mb(self.swarm.pids["scheduler"]))
            self.say(
                f"scheduler {number + 1}/{self.kills}: killed with {ended:,} of {self.tasks:,} "
                f"results; ready again after {ready_seconds[-1]:.2f} s, {memory[-1]:.0f} MB"
            )
        sending.join()
        self._wait_for(self.tasks)
        self.figures |= {
            "large_job_seconds": round(time.monotonic() - began, 1),
            "large_job_ready_seconds_max": round(max(ready_seconds, default=0.0), 2),
            "large_job_memory_mb_after_restart_max": round(max(memory, default=0.0), 1),
            "large_job_memory_mb_end": round(pss_mb(self.swarm.pids["scheduler"]), 1),
            "large_job_requests_sent_again": self._sent_again,
        }
        self._check()
        return self.complaints

    def _send(self) -> None:
        """As a patient client: each request again until it is answered."""
        body = {"id": self.job, "task": {"python": "operator:mul"}, "closed": False}
        self._until_answered(lambda client: client.submit_job_body(body))
        sets = [[index, FACTOR] for index in range(self.tasks)]
        parts = [sets[at : at + BATCH_TASKS] for at in range(0, self.tasks, BATCH_TASKS)]
        for number, part in enumerate(parts):
            batch = {"batch": number, "arguments": part}
            self._until_answered(partial(Client.append, job_id=self.job, batch=batch))
        self._until_answered(lambda client: client.close_job(self.job))

    def _until_answered(self, ask: Callable[[Client], object]) -> None:
        while True:
            try:
                with Client(self.swarm.api, self.swarm.token) as client:
                    ask(client)
                return
            except ClientError:
                self._sent_again += 1
                time.sleep(0.05)

    def _ended(self) -> int:
        with contextlib.suppress(ClientError):
            return self.swarm.client.job(self.job).tasks.ended
        return 0

    def _wait_for(self, ended: int) -> None:
        eventually(lambda: self._ended() >= ended, f"{ended:,} results are there", END_SECONDS)

    def _check(self) -> None:
        job = self.swarm.client.wait_job(self.job, 60)
        if job.state != "succeeded" or job.tasks.succeeded != self.tasks:
            self.complaints.append(f"the job {job.state} with {job.tasks}")
        seen: set[int] = set()
        for result in self.swarm.client.results(self.job, follow=False):
            if result.index in seen:
                self.complaints.append(f"task {result.index} has two results")
            seen.add(result.index)
            if result.value != result.index * FACTOR:
                self.complaints.append(f"task {result.index} has the value {result.value!r}")
        if len(seen) != self.tasks:
            self.complaints.append(f"{self.tasks - len(seen)} results are missing")
        with contextlib.closing(sqlite3.connect(self.swarm.journal)) as journal:
            rows = journal.execute("SELECT count(*), count(DISTINCT task_index) FROM results")
            if tuple(rows.fetchone()) != (self.tasks, self.tasks):
                self.complaints.append("the journal has not one row for each task")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--json", action="store_true", help="print the figures as one object")
    options = parser.parse_args()
    output = sys.stderr if options.json else sys.stdout
    with tempfile.TemporaryDirectory(prefix="mycel-large-") as folder:
        swarm = Swarm(Path(folder) / "home", SETTINGS)
        try:
            large = LargeJob(
                swarm,
                options.tasks,
                options.kills,
                lambda text: print(text, file=output, flush=True),
            )
            complaints = large.run()
        finally:
            swarm.stop()
    for complaint in complaints[:10]:
        print(complaint, file=output)
    if options.json:
        print(json.dumps({**large.figures, "complaints": len(complaints)}))
    else:
        print("\n".join(f"{name}: {value}" for name, value in large.figures.items()))
    print("1 passed, 0 failed" if not complaints else "0 passed, 1 failed", file=output)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
