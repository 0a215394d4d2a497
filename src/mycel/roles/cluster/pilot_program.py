"""`mycel cluster pilot`: keeps as many workers in allocations as the swarm's queue deserves.

It keeps no state but a name of its own: which allocations are there, the batch system says, and
what their workers do, the scheduler. So it can be killed and started again.
"""

from __future__ import annotations

import secrets
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from mycel.access.secret_files import replace_secret_file
from mycel.batch.batch_system import BatchSystem, Submission
from mycel.batch.errors import BatchError
from mycel.client import Client, ClientError, Worker
from mycel.core.agent.batch_jobs import BatchState, ClusterJob
from mycel.core.agent.pilot_plan import Demand, PilotPlan, PilotSettings, PilotWorker

from .pilot_script import pilot_script

PREFIX: Final = "mycel-pilot"
PILOT: Final = "pilot-id"


class PilotOptions(msgspec.Struct, frozen=True):
    folder: Path
    """Every node sees it. Here lie the invite, the workers' configuration and their output."""
    invite: str
    config: str
    """Of the workers; TOML."""
    job: ClusterJob
    """What one allocation needs."""
    settings: PilotSettings
    look_seconds: float
    grace_seconds: float
    """At the end: what runs may go on for so long."""


class Pilot:
    def __init__(self, options: PilotOptions, batch: BatchSystem, client: Client) -> None:
        self._options = options
        self._batch = batch
        self._client = client
        self._folder = options.folder.absolute()
        self._output = self._folder / "output"
        self._output.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._prefix = f"{PREFIX}-{_own_id(self._folder)}-"
        self._invite = self._folder / "invite"
        self._config = self._folder / "worker.toml"
        replace_secret_file(self._invite, options.invite.encode())
        replace_secret_file(self._config, options.config.encode())
        self.plan: Final = PilotPlan(options.settings)
        self._said = ""

    def turn(self) -> int:
        """How many allocations there are."""
        try:
            states = self._allocations()
            known = {worker.name: worker for worker in self._client.workers()}
            waiting = int(self._client.stats()["queue_depth"])
        except (BatchError, ClientError) as error:
            self._say(f"nothing is changed for now: {error}")
            return -1
        workers = [_pilot_worker(name, state, known.get(name)) for name, state in states.items()]
        demand = Demand(waiting, sum(worker.tasks for worker in workers))
        turn = self.plan.turn(demand, workers, time.monotonic())
        if self.plan.failures:
            self._say(
                f"{self.plan.failures} allocations in a row ended before their worker joined: "
                f"see {self._output}"
            )
        try:
            for _ in range(turn.start):
                self._start()
            for name in turn.drain:
                self._client.drain(name)
            if turn.cancel:
                self._batch.cancel([self._prefix + name for name in turn.cancel])
        except (BatchError, ClientError) as error:
            self._say(str(error))
        return len(workers)

    def cancel_all(self) -> None:
        try:
            self._batch.cancel([self._prefix + name for name in self._allocations()])
        except BatchError as error:
            self._say(f"allocations may still be there: {error}")

    def _allocations(self) -> dict[str, BatchState]:
        return {
            entry.name.removeprefix(self._prefix): entry.state
            for entry in self._batch.queue(self._prefix)
            if entry.state in (BatchState.PENDING, BatchState.HOPELESS, BatchState.RUNNING)
        }

    def _start(self) -> None:
        name = f"pilot-{secrets.token_hex(4)}"
        program = (sys.executable, "-m", "mycel")
        script = pilot_script(program, name, self._config, self._invite)
        self._batch.submit(
            Submission(
                name=self._prefix + name, job=self._options.job, script=script, folder=self._output
            )
        )

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            print(f"mycel cluster pilot: {text}", file=sys.stderr, flush=True)


def main(options: PilotOptions, batch: BatchSystem, client: Client) -> int:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    pilot = Pilot(options, batch, client)
    pilot.turn()
    while not ended.wait(options.look_seconds):
        pilot.turn()
    pilot.plan.is_closing = True
    ends_at = time.monotonic() + options.grace_seconds
    while pilot.turn() != 0 and time.monotonic() < ends_at:
        time.sleep(min(options.look_seconds, 1.0))
    pilot.cancel_all()
    return 0


def worker_config(cores: int, memory_bytes: int, labels: Sequence[tuple[str, str]]) -> str:
    """What the allocation has: without control groups a worker would count the whole node."""
    lines = ["[worker]", f"cpu_cores = {cores}", f"memory = {memory_bytes}"]
    if labels:
        pairs = ", ".join(f"{_text(name)} = {_text(value)}" for name, value in labels)
        lines.append(f"labels = {{ {pairs} }}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """A string of JSON is one of TOML."""
    return msgspec.json.encode(value).decode()


def _pilot_worker(name: str, state: BatchState, known: Worker | None) -> PilotWorker:
    pending = state is not BatchState.RUNNING
    if known is None or known.state == "dead":
        return PilotWorker(name, pending)
    tasks = max(known.load.running, known.load.tasks or 0)
    return PilotWorker(name, pending, joined=True, tasks=tasks, drained=not known.accepting)


def _own_id(folder: Path) -> str:
    path = folder / PILOT
    if not path.exists():
        replace_secret_file(path, secrets.token_hex(4).encode())
    return path.read_text().strip()
