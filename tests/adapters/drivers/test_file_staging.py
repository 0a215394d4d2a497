"""Tasks with files keep what drivers promise, and their outputs are safe before they have ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from mycel.blobs.errors import BadTree, NoRoom
from mycel.blobs.task_transfers import GatheredOutputs
from mycel.blobs.trees import Tree
from mycel.blobs.work_folder import NotShared
from mycel.core.identifiers import AttemptId
from mycel.core.model.task_files import Outputs
from mycel.core.model.work import Run, Work
from mycel.drivers.interface import Driver
from mycel.drivers.process.process_driver import ProcessDriver
from mycel.drivers.registry import DriverContext
from mycel.drivers.staged_driver import StagedDriver
from mycel.testing.drivers.conformance import PROMISES, Harness, Promise, keep, named
from mycel.testing.drivers.conformance_harness import LANE, open_harness

from .subjects import Processes


class AttemptFolders:
    """Files without a network: makes folders, and does not let go of what it is told to hold."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hold_before = asyncio.Event()
        self.hold_after = asyncio.Event()
        self.hold_gathering = asyncio.Event()
        self.hold_gathering.set()
        self.hold_before.set()
        self.hold_after.set()
        self.fails: Exception | None = None
        self.collected: list[AttemptId] = []
        self.gathering: list[AttemptId] = []

    async def fetch_to(self, digest: str, run: Run, target: Path) -> int:
        raise AssertionError("no task here brings code")

    async def send_value(self, run: Run, folder: Path) -> tuple[str, int]:
        raise AssertionError("no task here has a long value")

    async def prepare(self, run: Run) -> Run:
        await self.hold_before.wait()
        if self.fails is not None:
            raise self.fails
        folder = self.root / f"run-{run.attempt}"
        folder.mkdir(parents=True)
        return msgspec.structs.replace(run, folder=str(folder))

    async def gather(self, run: Run) -> GatheredOutputs:
        assert (Path(run.folder) / "out").exists()
        self.gathering.append(run.attempt)
        try:
            await self.hold_gathering.wait()
        finally:
            self.gathering.remove(run.attempt)
        return GatheredOutputs(Tree([]), 0.5)

    async def bring_home(self, run: Run, gathered: GatheredOutputs) -> None:
        await self.hold_after.wait()
        if self.fails is not None:
            raise self.fails
        self.collected.append(run.attempt)

    async def discard(self, run: Run) -> None:
        folder = self.root / f"run-{run.attempt}"
        if folder.exists():
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()


class Filed(Processes):
    """The process driver, with tasks that all have outputs."""

    files: AttemptFolders

    def create(self, context: DriverContext) -> Driver:
        self.files = AttemptFolders(context.root / "files")
        return StagedDriver(
            lambda listener: ProcessDriver(msgspec.structs.replace(context, listener=listener)),
            context.listener,
            files=self.files,
        )

    def quick(self) -> Work:
        command = ("sh", "-c", 'touch "$MYCEL_WORKDIR/out"')
        return Work("process", command=command, outputs=Outputs(("out",)))

    def slow(self) -> Work:
        return msgspec.structs.replace(super().slow(), outputs=Outputs(("out",)))


@pytest.mark.parametrize("promise", PROMISES, ids=named)
def test_promises(promise: Promise, tmp_path: Path) -> None:
    keep(promise, Filed(), tmp_path)


def play(tmp_path: Path, scenario: object) -> None:
    async def perform() -> None:
        subject = Filed()
        async with open_harness(subject, tmp_path) as harness:
            await scenario(harness, subject.files)  # type: ignore[operator]
            await harness.driver.close()
        assert not list(subject.files.root.glob("run-*")), "folders are left behind"

    asyncio.run(perform())


def test_a_task_has_not_ended_before_its_outputs_are_safe(tmp_path: Path) -> None:
    async def scenario(harness: Harness, files: AttemptFolders) -> None:
        files.hold_after.clear()
        first, second = harness.quick(), harness.quick()
        harness.submit(first)
        await harness.until(lambda: (files.root / f"run-{first.attempt}" / "out").exists())
        plain = harness.run_of(Work("process", command=("true",)))
        harness.submit(plain)
        await harness.end_of(plain)
        assert first.attempt not in harness.recorder.ends
        files.hold_after.set()
        assert (await harness.end_of(first)).state == "succeeded"
        harness.submit(second)
        await harness.end_of(second)
        assert files.collected == [first.attempt, second.attempt]

    play(tmp_path, scenario)


def test_a_task_that_waits_for_its_files_does_not_hold_up_its_lane(tmp_path: Path) -> None:
    async def scenario(harness: Harness, files: AttemptFolders) -> None:
        files.hold_before.clear()
        waiting = harness.quick()
        harness.submit(waiting)
        plain = harness.run_of(Work("process", command=("true",)))
        harness.submit(plain)
        await harness.end_of(plain)
        harness.driver.withdraw([waiting.attempt])
        await harness.until(lambda: waiting.attempt in harness.recorder.taken_back)

    play(tmp_path, scenario)


def test_a_task_is_killed_while_its_outputs_are_collected(tmp_path: Path) -> None:
    async def scenario(harness: Harness, files: AttemptFolders) -> None:
        files.hold_after.clear()
        run = harness.quick()
        harness.submit(run, lane=LANE)
        await harness.until(lambda: (files.root / f"run-{run.attempt}" / "out").exists())
        while run.attempt not in harness.recorder.ends:
            harness.driver.kill([run.attempt])
            await asyncio.sleep(0.01)
        assert harness.recorder.ends[run.attempt].state == "cancelled"

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("error", "is_workers"),
    [
        (NoRoom("full"), True),
        (BadTree("a link"), False),
        (NotShared("no"), True),
        (RecursionError("nobody thought of it"), True),
    ],
)
def test_whose_fault_it_is_that_files_cannot_be_had(
    tmp_path: Path, error: Exception, is_workers: bool
) -> None:
    async def scenario(harness: Harness, files: AttemptFolders) -> None:
        files.fails = error
        run = harness.quick()
        harness.submit(run)
        ended = await harness.end_of(run)
        assert (ended.state, ended.driver_fault) == ("failed", is_workers)
        assert str(error) in ended.error

    play(tmp_path, scenario)


def test_nothing_starts_in_a_lane_while_outputs_are_read(tmp_path: Path) -> None:
    async def scenario(harness: Harness, files: AttemptFolders) -> None:
        files.hold_gathering.clear()
        first = harness.quick()
        marks = [harness.folder / name for name in ("plain", "filed")]
        plain = harness.run_of(Work("process", command=("touch", str(marks[0]))))
        script = f'touch {marks[1]} "$MYCEL_WORKDIR/out"'
        filed = harness.run_of(
            Work("process", command=("sh", "-c", script), outputs=Outputs(("out",)))
        )
        harness.submit(first)
        await harness.until(lambda: files.gathering)
        harness.submit(plain, filed)
        # What waits behind one that takes long is given back, and does not start.
        await harness.until(lambda: plain.attempt in harness.recorder.given_back)
        await harness.until(lambda: filed.attempt in harness.recorder.given_back)
        harness.submit(plain)
        await harness.until(lambda: harness.recorder.given_back.count(plain.attempt) == 2)
        assert not any(mark.exists() for mark in marks)
        assert first.attempt not in harness.recorder.ends
        files.hold_gathering.set()
        end = await harness.end_of(first)
        assert end.state == "succeeded"
        assert end.cpu_seconds >= 0.5, "what reading takes is the attempt's"
        harness.submit(plain, filed)
        assert (await harness.end_of(plain)).state == "succeeded"
        assert (await harness.end_of(filed)).state == "succeeded"

    play(tmp_path, scenario)


@pytest.mark.parametrize("how", ["time-out", "kill", "close"])
def test_reading_outputs_ends_with_the_attempt(how: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness, files: AttemptFolders) -> None:
        files.hold_gathering.clear()
        work = harness.subject.quick()
        if how == "time-out":
            work = msgspec.structs.replace(work, timeout_seconds=1.0)
        run = harness.run_of(work)
        harness.submit(run)
        await harness.until(lambda: (files.root / f"run-{run.attempt}" / "out").exists())
        if how == "kill":
            await harness.until(lambda: files.gathering)
            harness.driver.kill([run.attempt])
        elif how == "close":
            await harness.until(lambda: files.gathering)
            await harness.driver.close()
        end = await harness.end_of(run)
        assert end.state == ("timed_out" if how == "time-out" else "cancelled")
        assert not files.gathering

    play(tmp_path, scenario)
