"""A stage on which a driver is shown to keep its promises, see `conformance`.

A stage has a real spawn helper and a folder, makes runs in the terms of its driver, records
what the listener is told, and waits for conditions, never for a time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.model.work import Run, Work
from mycel.drivers.helper.helper_client import HelperClient
from mycel.drivers.helper.spawn_helper import start_helper
from mycel.drivers.interface import Driver, Finished, FinishedState, Text
from mycel.drivers.registry import DriverContext

DEADLINE_SECONDS: Final = 30.0
GRACE_SECONDS: Final = 0.3
LANE: Final = LaneId(1)
OTHER_LANE: Final = LaneId(2)
JOB: Final = "01hzzzzzzzzzzzzzzzzzzzzzzz"

_attempts = itertools.count((1 << 40) + 1)


class Subject:
    """A driver under test: how it is made, and tasks of four kinds in its own terms."""

    name: str
    quick_state: FinishedState = "succeeded"
    """How a quick task ends, for a driver whose tasks are not there to succeed."""

    def create(self, context: DriverContext) -> Driver:
        raise NotImplementedError

    def quick(self) -> Work:
        """Ends by itself, and soon; it succeeds, unless `quick_state` says otherwise."""
        raise NotImplementedError

    def slow(self) -> Work:
        """Does not end by itself."""
        raise NotImplementedError

    def failing(self) -> Work:
        """Fails by its own fault."""
        raise NotImplementedError

    def crashing(self) -> Work:
        """Dies of a signal, or of whatever is worst."""
        return self.failing()

    def talking(self, folder: Path) -> Work | None:
        """Writes `before` and a line end, and does not end by itself; None, for a driver whose
        tasks write nothing."""
        return None

    def step(self) -> bool:
        """For a driver in virtual time: lets the next thing happen; False if there is none."""
        raise NotImplementedError


class Recorder:
    """Remembers all that it is told, and that every attempt ends once."""

    def __init__(self) -> None:
        self.starts: dict[AttemptId, float] = {}
        self.ends: dict[AttemptId, Finished] = {}
        self.given_back: list[AttemptId] = []
        self.taken_back: list[AttemptId] = []
        self.order: list[AttemptId] = []
        self.pieces: list[tuple[AttemptId, bytes]] = []
        self.texts: list[Text] = []
        self.events = asyncio.Event()

    def started(self, attempts: list[tuple[AttemptId, float]]) -> None:
        self.starts.update(attempts)
        self.events.set()

    def streamed(self, attempt: AttemptId, piece: bytes) -> None:
        self.pieces.append((attempt, piece))

    def wrote(self, texts: list[Text]) -> None:
        self.texts += texts
        self.events.set()

    def finished(self, finished: list[Finished]) -> None:
        for one in finished:
            self.ends[one.attempt] = one
            self.order.append(one.attempt)
        self.events.set()

    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None:
        self.given_back += attempts
        self.order += attempts
        self.events.set()

    def withdrawn(self, attempts: list[AttemptId]) -> None:
        self.taken_back += attempts
        self.order += attempts
        self.events.set()


class Harness:
    def __init__(
        self,
        subject: Subject,
        driver: Driver,
        recorder: Recorder,
        folder: Path,
        helper: HelperClient | None = None,
    ) -> None:
        self.subject = subject
        self.driver = driver
        self.recorder = recorder
        self.folder = folder
        self.helper = helper
        self.submitted: list[AttemptId] = []
        self._seen = 0
        """How much of what came back has been dealt with."""

    def run(
        self,
        command: tuple[str, ...] = (),
        *,
        arguments: Any = None,
        timeout: float | None = None,
        user: str = "owner",
        number: int = 1,
        folder: str = "",
        **work: Any,
    ) -> Run:
        """A run of a task that has these fields of `Work`."""
        made = Work(self.subject.name, command=command, timeout_seconds=timeout, **work)
        raw = b"" if arguments is None else json.dumps(arguments).encode()
        run = self.run_of(made)
        return msgspec.structs.replace(run, arguments=raw, user=user, number=number, folder=folder)

    def run_of(self, work: Work) -> Run:
        attempt = AttemptId(next(_attempts))
        return Run(attempt, f"{JOB}.{attempt & 0xFFFF}", JOB, 1, "owner", work, b"")

    def quick(self) -> Run:
        return self.run_of(self.subject.quick())

    def slow(self, timeout: float | None = None) -> Run:
        work = msgspec.structs.replace(self.subject.slow(), timeout_seconds=timeout)
        return self.run_of(work)

    def failing(self) -> Run:
        return self.run_of(self.subject.failing())

    def crashing(self) -> Run:
        return self.run_of(self.subject.crashing())

    def submit(self, *runs: Run, lane: LaneId = LANE) -> None:
        self.submitted += [run.attempt for run in runs]
        self.driver.submit(lane, list(runs))

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if self.helper is None:
                assert self.subject.step(), "nothing is left to happen"
                continue
            left = deadline - time.monotonic()
            assert left > 0, f"still waiting after {DEADLINE_SECONDS} s: {self.recorder.ends}"
            self.recorder.events.clear()
            try:
                # Now and then even without news: files and processes make none.
                await asyncio.wait_for(self.recorder.events.wait(), min(left, 0.02))
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
async def open_harness(
    subject: Subject, folder: Path, *, virtual: bool = False
) -> AsyncIterator[Harness]:
    """Opens a driver; at the end closes it, and checks what must be true of every scenario.

    A `virtual` driver has no processes and no helper: its subject makes things happen."""
    recorder = Recorder()
    root = folder / "root"
    helper = None if virtual else HelperClient(start_helper())
    context = DriverContext(
        helper=helper,  # type: ignore[arg-type]  # none for a driver that starts nothing
        listener=recorder,
        root=root,
        grace_seconds=GRACE_SECONDS,
    )
    try:
        harness = Harness(subject, subject.create(context), recorder, folder, helper)
        yield harness
        await asyncio.wait_for(harness.driver.close(), DEADLINE_SECONDS)
    finally:
        if helper is not None:
            await helper.close()
    left = [
        path
        for path in root.glob("*/*")
        if path.name.startswith(("lane-", "interpreter-", "model-"))
    ]
    assert not left, f"working folders are left: {left}"
    assert sorted(recorder.order) == sorted(harness.submitted), "each ends exactly once"


def is_gone(process_id: int) -> bool:
    """Dead; a zombie that nobody has reaped yet is dead too."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"
