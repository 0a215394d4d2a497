"""What becomes of the processes of real drivers, however their tasks, or the worker, end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mycel.testing.drivers.conformance import Harness
from mycel.testing.drivers.conformance_harness import Recorder, is_gone

from .conftest import Play
from .subjects import Processes, deed

real_driver = pytest.mark.parametrize("kind", ["process", "python"])


@real_driver
@pytest.mark.parametrize("how", ["time-out", "kill"])
def test_the_whole_process_group_goes(kind: str, how: str, play: Play, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        note = tmp_path / "note"
        timeout = 2.0 if how == "time-out" else None
        # The leader dies of SIGTERM; its child does not listen to it.
        script = f"(trap '' TERM; sleep 1000) & echo $$ $! > {note}.new; mv {note}.new {note}; wait"
        if kind == "python":
            run = deed(harness, "with_grandchild", str(note), timeout=timeout)
        else:
            run = harness.run(("sh", "-c", script), timeout=timeout)
        harness.submit(run)
        await harness.until(lambda: note.exists() and note.read_text().strip())
        if how == "kill":
            harness.driver.kill([run.attempt])
        end = await harness.end_of(run)
        assert end.state == ("timed_out" if how == "time-out" else "cancelled")
        assert all(is_gone(int(word)) for word in note.read_text().split())

    play(kind, scenario)


@real_driver
def test_both_streams_are_told_in_stretches(kind: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        script = "echo before; sleep 0.3; echo after; echo more >&2; exec sleep 1000"
        await harness.result_of(harness.quick())
        run = deed(harness, "talk_on") if kind == "python" else harness.run(("sh", "-c", script))
        harness.submit(run)
        texts = harness.recorder.texts
        await harness.until(lambda: b"more\n" in [one.data for one in texts if one.stream == 2])
        await harness.until(lambda: sum(one.stream == 1 for one in texts) == 2)
        told = [(one.offset, one.data) for one in texts if one.stream == 1]
        assert told == [(0, b"before\n"), (7, b"after\n")]
        harness.driver.kill([run.attempt])
        await harness.end_of(run)

    play(kind, scenario)


@real_driver
def test_who_ignores_sigterm_is_killed_after_the_grace(kind: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        if kind == "python":
            run = deed(harness, "hog", timeout=0.1)
        else:
            run = harness.run(("sh", "-c", "trap '' TERM; sleep 1000; sleep 1000"), timeout=0.1)
        end = await harness.result_of(run)
        assert end.state == "timed_out"

    play(kind, scenario)


def test_sigkill_of_the_worker_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        "import os, pathlib, time\n"
        "def call():\n"
        "    pathlib.Path(os.environ['NOTE']).write_text(str(os.getpid()))\n"
        "    time.sleep(1000)\n"
    )
    notes = [tmp_path / name for name in ("task", "grandchild", "call")]
    worker = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("worker.py")), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    async def watch() -> None:
        harness = Harness(Processes(), None, Recorder(), tmp_path, object())  # type: ignore[arg-type]
        await harness.until(lambda: all(n.exists() and n.read_text().strip() for n in notes))
        process_ids = [int(note.read_text()) for note in notes]
        assert not any(is_gone(process_id) for process_id in process_ids)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        await harness.until(lambda: all(is_gone(process_id) for process_id in process_ids))

    try:
        asyncio.run(watch())
    finally:
        worker.kill()
        worker.wait()


@real_driver
def test_a_lost_helper_is_the_drivers_fault(kind: str, play: Play, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        note = tmp_path / "note"
        script = f"sleep 1000 & echo $$ $! > {note}; wait"
        if kind == "python":
            head = deed(harness, "with_grandchild", str(note))
        else:
            head = harness.run(("sh", "-c", script))
        harness.submit(head)
        await harness.until(lambda: note.exists() and note.read_text().strip())
        assert harness.helper is not None
        os.kill(harness.helper.process_id, signal.SIGKILL)
        end = await harness.end_of(head)
        assert (end.state, end.driver_fault) == ("failed", True)
        assert (await harness.result_of(harness.quick())).driver_fault
        process_ids = [int(word) for word in note.read_text().split()]
        await harness.until(lambda: all(is_gone(process_id) for process_id in process_ids))
        for left in (harness.folder / "root" / kind).iterdir():
            left.rmdir()

    play(kind, scenario)


@real_driver
def test_what_an_earlier_worker_left_is_cleared_away(kind: str, play: Play, tmp_path: Path) -> None:
    name = "lane-7" if kind == "process" else "interpreter-7"
    folder = tmp_path / "root" / kind / name
    (folder / "deep").mkdir(parents=True)
    abandoned = subprocess.Popen(["sleep", "1000"], env={"MYCEL_WORKDIR": str(folder)})

    async def scenario(harness: Harness) -> None:
        assert not folder.exists()
        assert abandoned.wait() == -signal.SIGKILL

    play(kind, scenario)
