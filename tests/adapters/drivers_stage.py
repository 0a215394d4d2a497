"""A stage for each driver, so that one suite can test them all.

A stage makes runs that are quick, slow, failing or crashing in its driver's own terms, records
what the listener is told, and waits for conditions: in real time for real processes, by
moving the clock for the in-memory driver.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.work import Work
from mycel.drivers.helper import start_helper
from mycel.drivers.helper_client import Helper
from mycel.drivers.interface import Driver, Finished, Run
from mycel.drivers.interpreter_pool import PoolLimits
from mycel.drivers.memory import MemoryDriver
from mycel.drivers.process import ProcessDriver
from mycel.drivers.python import PythonDriver

DEADLINE_SECONDS = 30.0
LANE = LaneId(1)
OTHER_LANE = LaneId(2)
JOB = "01hzzzzzzzzzzzzzzzzzzzzzzz"
KINDS = ("process", "python", "memory")

_attempts = itertools.count((1 << 40) + 1)


class Recorder:
    """Remembers all that it is told, and that every attempt ends once."""

    def __init__(self) -> None:
        self.starts: dict[AttemptId, float] = {}
        self.ends: dict[AttemptId, Finished] = {}
        self.given_back: list[AttemptId] = []
        self.taken_back: list[AttemptId] = []
        self.order: list[AttemptId] = []
        self.pieces: list[tuple[AttemptId, bytes]] = []
        self.news = asyncio.Event()

    def started(self, attempts: list[tuple[AttemptId, float]]) -> None:
        self.starts.update(attempts)
        self.news.set()

    def streamed(self, attempt: AttemptId, piece: bytes) -> None:
        self.pieces.append((attempt, piece))

    def finished(self, finished: list[Finished]) -> None:
        for one in finished:
            self.ends[one.attempt] = one
            self.order.append(one.attempt)
        self.news.set()

    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None:
        self.given_back += attempts
        self.order += attempts
        self.news.set()

    def withdrawn(self, attempts: list[AttemptId]) -> None:
        self.taken_back += attempts
        self.order += attempts
        self.news.set()


class Clock:
    def __init__(self) -> None:
        self._now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), callback))

    def step(self) -> bool:
        if not self._due:
            return False
        self._now, _, callback = heapq.heappop(self._due)
        callback()
        return True


class Stage:
    def __init__(self, kind: str, driver: Driver, recorder: Recorder, folder: Path) -> None:
        self.kind = kind
        self.driver = driver
        self.recorder = recorder
        self.folder = folder
        self.submitted: list[AttemptId] = []
        self.clock: Clock | None = None
        self._seen = 0
        """How much of what came back has been dealt with."""

    def run(
        self,
        command: tuple[str, ...] = (),
        *,
        function: str = "",
        arguments: Any = None,
        env: tuple[tuple[str, str], ...] = (),
        timeout: float | None = None,
        user: str = "owner",
        number: int = 1,
        folder: str = "",
    ) -> Run:
        attempt = AttemptId(next(_attempts))
        work = Work(
            driver=self.kind,
            command=command,
            function=function,
            env=env,
            timeout_seconds=timeout,
        )
        raw = b"" if arguments is None else json.dumps(arguments).encode()
        return Run(attempt, f"{JOB}.{attempt & 0xFFFF}", JOB, number, user, work, raw, folder)

    def quick(self) -> Run:
        return self.run(("true",), function="time:time")

    def slow(self, timeout: float | None = None) -> Run:
        if self.kind == "python":
            return self.run(function="time:sleep", arguments=[1000], timeout=timeout)
        return self.run(("sleep", "1000"), timeout=timeout)

    def failing(self) -> Run:
        if self.kind == "python":
            return self.run(function="math:sqrt", arguments=[-1])
        return self.run(("false",))

    def crashing(self) -> Run:
        return self.run(("sh", "-c", "kill -SEGV $$"), function="os:abort")

    def submit(self, *runs: Run, lane: LaneId = LANE) -> None:
        self.submitted += [run.attempt for run in runs]
        self.driver.submit(lane, list(runs))

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if self.clock is not None:
                assert self.clock.step(), "nothing is left to happen"
                continue
            left = deadline - time.monotonic()
            assert left > 0, f"still waiting after {DEADLINE_SECONDS} s: {self.recorder.ends}"
            self.recorder.news.clear()
            try:
                # Now and then even without news: files and processes make none.
                await asyncio.wait_for(self.recorder.news.wait(), min(left, 0.02))
            except TimeoutError:
                continue

    async def end_of(self, run: Run) -> Finished:
        await self.until(lambda: run.attempt in self.recorder.ends)
        return self.recorder.ends[run.attempt]

    async def result_of(self, run: Run) -> Finished:
        return (await self.results_of(run))[0]

    async def results_of(self, *runs: Run) -> list[Finished]:
        """Submits them, and again what comes back from behind one that took long: on a busy
        machine the first import does."""
        self.submit(*runs)
        ends, came_back = self.recorder.ends, self.recorder.given_back
        while True:
            await self.until(
                lambda: len(came_back) > self._seen or all(run.attempt in ends for run in runs)
            )
            again = [run for run in runs if run.attempt in came_back[self._seen :]]
            self._seen = len(came_back)
            if again:
                self.submit(*again)
            elif all(run.attempt in ends for run in runs):
                return [ends[run.attempt] for run in runs]

    async def start_of(self, run: Run) -> None:
        await self.until(lambda: run.attempt in self.recorder.starts)

    async def all_ended(self) -> None:
        await self.until(lambda: len(self.recorder.order) >= len(self.submitted))


@asynccontextmanager
async def stage_of(kind: str, folder: Path, **options: Any) -> AsyncIterator[Stage]:
    """Opens a driver; at the end closes it, and checks what must be true of every test."""
    recorder = Recorder()
    if kind == "memory":
        stage = _memory_stage(recorder, folder)
        yield stage
        await stage.driver.close()
    else:
        helper = Helper(start_helper())
        try:
            stage = Stage(
                kind, _real_driver(kind, helper, recorder, folder, options), recorder, folder
            )
            yield stage
            await asyncio.wait_for(stage.driver.close(), DEADLINE_SECONDS)
        finally:
            await helper.close()
        assert list((folder / "root").iterdir()) == [], "working folders are left"
    assert sorted(recorder.order) == sorted(stage.submitted), "each ends exactly once"


def _real_driver(
    kind: str, helper: Helper, recorder: Recorder, folder: Path, options: dict[str, Any]
) -> Driver:
    options.setdefault("grace_seconds", 0.3)
    if kind == "process":
        return ProcessDriver(helper, recorder, folder / "root", **options)
    limits = {name: options.pop(name) for name in PoolLimits.__struct_fields__ if name in options}
    return PythonDriver(helper, recorder, folder / "root", limits=PoolLimits(**limits), **options)


def _memory_stage(recorder: Recorder, folder: Path) -> Stage:
    clock = Clock()

    def duration(run: Run) -> float:
        return 1000.0 if run.work.command[0] == "sleep" else 0.001

    def outcome(run: Run) -> Finished:
        good = run.work.command[0] == "true"
        return Finished(run.attempt, "succeeded" if good else "failed", error="" if good else "no")

    driver = MemoryDriver(clock, recorder, random.Random(1), duration, outcome)
    stage = Stage("memory", driver, recorder, folder)
    stage.clock = clock
    return stage


def is_gone(process_id: int) -> bool:
    """Dead; a zombie that nobody has reaped yet is dead too."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"
