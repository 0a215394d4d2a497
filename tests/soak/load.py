"""Work for the swarm while its parts are killed, and a book of what it promised.

Jobs bring their own ids, so that a submission whose answer was lost is sent again without
doubling it; only what was acknowledged enters the book.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any, Final

from mycel.client import Busy, Client, ClientError, Conflict, ConnectionLost, NotRunning
from mycel.core.identifiers import ulid

FUNCTION: Final = "tests.soak.workload:record"
JOB_TASKS_MAX: Final = 120
DEPTH: Final = 240
"""So many tasks are kept waiting."""
SECONDS_MIN, SECONDS_MAX = 0.05, 0.8
FAILING: Final = 0.02
CANCELLED: Final = 0.02
LOOK_SECONDS: Final = 0.05

Ending = tuple[str, str]
"""A task's state and its value, as JSON text."""


class Load:
    """A thread of its own submits, cancels and reads until `finish`."""

    def __init__(self, api: str, token: str, log: Path, seed: int) -> None:
        self.jobs: dict[str, int] = {}
        """Acknowledged, with their numbers of tasks."""
        self.asked_to_cancel: set[str] = set()
        self.cancelled: set[str] = set()
        """Acknowledged."""
        self.seen: dict[str, Any] = {}
        """Ends of tasks that the API has shown, by task id."""
        self.sent_again = 0
        self.mixes_priorities = True
        self.is_submitting = threading.Event()
        self.fault: BaseException | None = None
        self._client = Client(api, token)
        self._log = log
        self._random = random.Random(seed)
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Submits no more."""
        self._finishing.set()
        self._thread.join(120.0)
        if self.fault is not None:
            raise self.fault

    def _run(self) -> None:
        try:
            while not self._finishing.is_set():
                self._once()
        except BaseException as error:  # noqa: BLE001 - told by `finish`
            self.fault = error

    def _once(self) -> None:
        try:
            depth = self._client.stats()["queue_depth"]
        except (ConnectionLost, NotRunning, Busy):
            time.sleep(LOOK_SECONDS)
            return
        if depth < DEPTH:
            self._submit()
        else:
            self._look()
            time.sleep(LOOK_SECONDS)

    def _submit(self) -> None:
        identifier = ulid(time.time_ns() // 1_000_000, os.urandom(10))
        count = self._random.randint(1, JOB_TASKS_MAX)
        arguments = [
            [
                str(self._log),
                round(self._random.uniform(SECONDS_MIN, SECONDS_MAX), 3),
                self._random.random() < FAILING,
            ]
            for _ in range(count)
        ]
        # Shapes that compete for leases. A higher priority may keep the others waiting for
        # long, so it is there only while nobody measures how long they wait.
        task = {
            "python": FUNCTION,
            "priority": self._random.choice((0, 0, 1)) if self.mixes_priorities else 0,
            "requirements": {"cpu_cores": self._random.choice((1, 1, 0.5))},
        }
        body = {"id": identifier, "task": task, "arguments": arguments}
        self.is_submitting.set()
        while True:
            try:
                self._client.submit_job_body(body)
                break
            except (ConnectionLost, NotRunning, Busy):
                self.sent_again += 1
                time.sleep(LOOK_SECONDS)
        self.is_submitting.clear()
        self.jobs[identifier] = count
        for index in range(count):
            if self._random.random() < CANCELLED:
                self._cancel(f"{identifier}.{index}")

    def _cancel(self, task: str) -> None:
        self.asked_to_cancel.add(task)
        while True:
            try:
                self._client.cancel(task)
                self.cancelled.add(task)
                return
            except Conflict:  # it has ended by itself
                return
            except (ConnectionLost, NotRunning, Busy):
                time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        """At the results of some job: what was shown once may never change."""
        if not self.jobs:
            return
        job = self._random.choice(list(self.jobs)[-20:])
        try:
            for result in self._client.results(job, follow=False):
                self.seen[f"{job}.{result.index}"] = (result.state, result.value, result.sequence)
        except (ConnectionLost, NotRunning, Busy):
            return

    def wait(self, seconds: float) -> list[str]:
        """Until all jobs have ended; those that have not are returned."""
        ends_at = time.monotonic() + seconds
        left = list(self.jobs)
        while left and time.monotonic() < ends_at:
            try:
                job = self._client.job(left[-1])
            except (ConnectionLost, NotRunning, Busy):
                time.sleep(LOOK_SECONDS)
                continue
            except ClientError:  # the verdict names the job that is not there
                left.pop()
                continue
            if job.is_over:
                left.pop()
            else:
                time.sleep(LOOK_SECONDS)
        return left
