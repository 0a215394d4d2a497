"""One driver with many tasks that do nothing, in a process of its own.

`python -m mycel.bench.drivers.driver_runs` reads one order from its input and prints one outcome.
The spawn helper is forked first of all, as in a worker, and two lanes are kept busy; there is no
scheduler and no network in it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.model.work import Run, Work
from mycel.drivers.container.container_engine import Engine
from mycel.drivers.helper.spawn_helper import HelperHandle, start_helper
from mycel.drivers.interface import Driver, Finished, Text

LANES: Final = 2
RUN_SECONDS_MAX: Final = 600.0
WORKS: Final = {
    "process": Work("process", command=("/bin/true",)),
    "python": Work("python", function="builtins:bool"),
}
DEPTHS: Final = {"process": 48, "python": 512, "container": 1}
"""How many a lane has at once, about as many as a worker gives it: 40 ms of processes, 5 ms of
calls; what takes long has nobody behind it."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    driver: str
    count: int
    folder: str
    sandbox: bool = False
    engine: Engine | None = None
    image: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    count: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of the driver and its helper; not of the tasks."""
    error: str = ""

    @property
    def tasks_per_s(self) -> float:
        return self.count / self.seconds


class NotMeasured(Exception):
    """Why; for the reader of the figures."""


def measure(order: Order) -> Outcome:
    """Each end was looked at; one failure ends it. Raises `NotMeasured`."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mycel.bench.drivers.driver_runs"],
            input=msgspec.json.encode(order),
            stdout=subprocess.PIPE,
            timeout=RUN_SECONDS_MAX,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise NotMeasured(str(error)) from error
    outcome = msgspec.json.decode(done.stdout, type=Outcome)
    if outcome.error:
        raise NotMeasured(outcome.error)
    return outcome


class _Feeder:
    """Gives a driver what it asks for, and looks at each end."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._numbers = itertools.count(1)
        self._left = 0
        """To be given."""
        self._lane_of: dict[AttemptId, LaneId] = {}
        self._through = asyncio.Event()
        self.driver: Driver | None = None
        self.error = ""

    async def run(self, count: int, depth: int) -> None:
        """So many tasks over both lanes, each of which has `depth` of them at most."""
        self._left = count
        self._through.clear()
        for lane in range(1, LANES + 1):
            self._give(LaneId(lane), depth)
        await self._through.wait()

    def _give(self, lane: LaneId, count: int) -> None:
        assert self.driver is not None
        runs = [self._run(lane) for _ in range(min(count, self._left))]
        self._left -= len(runs)
        if runs:
            self.driver.submit(lane, runs)

    def _run(self, lane: LaneId) -> Run:
        attempt = AttemptId(next(self._numbers))
        self._lane_of[attempt] = lane
        return Run(attempt, f"bench.{attempt}", "bench", 1, "owner", self._work, b"")

    def finished(self, finished: list[Finished]) -> None:
        again: Counter[LaneId] = Counter()
        for one in finished:
            again[self._lane_of.pop(one.attempt)] += 1
            if one.state != "succeeded":
                self.error = one.error.partition("\n")[0]
                self._left = 0
        for lane, count in again.items():
            self._give(lane, count)
        if not self._lane_of:
            self._through.set()

    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None:
        """From behind one that took long."""
        for attempt in attempts:
            del self._lane_of[attempt]
        self._left += len(attempts)
        self._give(lane, len(attempts))

    def started(self, attempts: list[tuple[AttemptId, float]]) -> None: ...
    def streamed(self, attempt: AttemptId, piece: bytes) -> None: ...
    def wrote(self, texts: list[Text]) -> None: ...
    def withdrawn(self, attempts: list[AttemptId]) -> None: ...


async def _run(order: Order, end: HelperHandle) -> Outcome:
    from mycel.config.settings import Worker
    from mycel.core.model.resources import Capabilities
    from mycel.devices import host
    from mycel.drivers.container.container_driver import ContainerSettings
    from mycel.drivers.helper.helper_client import HelperClient
    from mycel.drivers.registry import DriverContext, create_drivers
    from mycel.drivers.sandbox.detection import NoSandbox, detect_sandbox
    from mycel.roles.worker.confinement import confinement_policy

    helper = HelperClient(end)
    root = Path(order.folder) / "tasks"
    settings = Worker(sandbox="required" if order.sandbox else "off")
    offered = Capabilities(cpu_cores=LANES, memory=host.memory_bytes())
    try:
        # As a worker does it, with its control groups: what users get is measured.
        status = detect_sandbox(
            settings, root, Path(order.folder), offered.memory, (os.getpid(), end.process_id)
        )
    except NoSandbox as reason:
        await helper.close()
        return Outcome(error=str(reason))
    helper.post(status.plan)
    work = WORKS.get(order.driver) or Work("container", command=("true",), image=order.image)
    feeder = _Feeder(work)
    context = DriverContext(
        helper=helper,
        listener=feeder,
        root=root,
        policy=confinement_policy(settings, offered, status),
        containers=None if order.engine is None else ContainerSettings(engine=order.engine),
    )
    (feeder.driver,) = create_drivers([order.driver], context)
    try:
        await feeder.run(LANES, 1)  # interpreters are warm then, and images known
        cpu_before, began = _cpu_seconds(helper.process_id), time.perf_counter()
        await feeder.run(order.count, DEPTHS[order.driver])
        seconds = time.perf_counter() - began
        cpu_seconds = _cpu_seconds(helper.process_id) - cpu_before
    finally:
        await feeder.driver.close()
        await helper.close()
    return Outcome(count=order.count, seconds=seconds, cpu_seconds=cpu_seconds, error=feeder.error)


def _cpu_seconds(helper: int) -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    fields = Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return used.ru_utime + used.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    end = start_helper()
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    outcome = asyncio.run(_run(order, end))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
