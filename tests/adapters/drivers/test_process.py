"""The `process` driver: commands, their output, environment and folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mycel.testing.drivers.conformance import Harness
from mycel.testing.drivers.conformance_harness import JOB, is_gone

from .conftest import Play


def test_output_and_exit_code_of_a_process(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.run(("sh", "-c", "echo out; echo err >&2; exit 3")))
        assert (end.state, end.exit_code) == ("failed", 3)
        assert (end.stdout, end.stderr) == (b"out\n", b"err\n")
        killed = await harness.result_of(harness.run(("sh", "-c", "kill -9 $$")))
        assert killed.exit_code == 137

    play("process", scenario)


@pytest.mark.parametrize(
    ("command", "exit_code", "error"),
    [
        (("no-such-command",), 127, "command not found: 'no-such-command'"),
        (("/no/such/file",), 127, "command not found: '/no/such/file'"),
        (("/etc/passwd",), 126, "permission denied"),
        (("nul\0byte",), 127, "command not found"),
        ((), 126, "the command is empty"),
        (("true", "nul\0byte"), 126, "null"),
    ],
)
def test_a_command_that_cannot_run(
    command: tuple[str, ...], exit_code: int, error: str, play: Play
) -> None:
    async def scenario(harness: Harness) -> None:
        end, after = await harness.results_of(harness.run(command), harness.quick())
        assert (end.state, end.driver_fault) == ("failed", False)
        assert error in end.error
        if "\0" not in command[:1]:
            assert end.exit_code == exit_code
        assert after.state == "succeeded"

    play("process", scenario)


def test_a_folder_that_cannot_be_looked_into_hides_nothing_behind_it(play: Play) -> None:
    """One that may not be searched is the usual one; root may search them all."""
    search = f"/{'x' * 300}:{os.environ['PATH']}"

    async def scenario(harness: Harness) -> None:
        env = (("PATH", search),)
        end = await harness.result_of(harness.run(("sh", "-c", "echo found"), env=env))
        assert end.stdout == b"found\n"
        missing = await harness.result_of(harness.run(("no-such-command",), env=env))
        assert missing.exit_code == 127

    play("process", scenario)


def test_output_keeps_head_and_tail(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(
            harness.run(("sh", "-c", "echo first; seq 100000; echo last"))
        )
        assert len(end.stdout) <= 4096
        assert end.stdout.startswith(b"first\n1\n")
        assert end.stdout.endswith(b"100000\nlast\n")
        assert b"bytes left out" in end.stdout

    play("process", scenario, output_bytes_max=4096)


def test_much_output_arrives_whole(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.run(("seq", "300000")))
        assert end.stdout == b"".join(b"%d\n" % n for n in range(1, 300001))

    play("process", scenario)


def test_a_background_child_does_not_outlive_its_task(play: Play, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        note = tmp_path / "note"
        run = harness.run(("sh", "-c", f"sleep 1000 & echo $! > {note}; echo done"))
        end = await harness.result_of(run)
        assert (end.state, end.stdout) == ("succeeded", b"done\n")
        assert is_gone(int(note.read_text()))

    play("process", scenario)


def test_one_that_leaves_its_group_ends_with_the_helper(play: Play, tmp_path: Path) -> None:
    note = tmp_path / "note"

    async def scenario(harness: Harness) -> None:
        script = f"setsid sh -c 'echo $$ > {note}.new; mv {note}.new {note}; exec sleep 1000' &"
        run = harness.run(("sh", "-c", f"{script} while ! test -e {note}; do :; done"))
        assert (await harness.result_of(run)).state == "succeeded"

    play("process", scenario)
    assert is_gone(int(note.read_text()))


def test_the_environment_of_a_process(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "hidden")

    async def scenario(harness: Harness) -> None:
        run = harness.run(("env",), env=(("COLOUR", "grün"), ("LANG", "xx")), number=3)
        end = await harness.result_of(run)
        lines = dict(line.split("=", 1) for line in end.stdout.decode().splitlines())
        assert lines["COLOUR"] == "grün"
        assert lines["LANG"] == "xx"
        assert lines["PATH"] == os.environ["PATH"]
        assert lines["MYCEL_JOB_ID"] == JOB
        assert lines["MYCEL_TASK_ID"] == run.task_id
        assert lines["MYCEL_ATTEMPT"] == "3"
        assert Path(lines["MYCEL_WORKDIR"]).parent == harness.folder / "root" / "process"
        assert "SECRET_OF_THE_WORKER" not in lines

    play("process", scenario)


def test_the_command_is_searched_in_the_tasks_own_path(play: Play, tmp_path: Path) -> None:
    program = tmp_path / "greet"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.run(("greet",), env=(("PATH", str(tmp_path)),)))
        assert end.stdout == b"hello\n"

    play("process", scenario)


def test_each_process_finds_an_empty_folder_that_is_removed(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        script = 'test "$PWD" = "$MYCEL_WORKDIR" && ls -A && touch file && mkdir -p deep/deeper'
        runs = [harness.run(("sh", "-c", script)) for _ in range(3)]
        for end in await harness.results_of(*runs):
            assert (end.state, end.stdout) == ("succeeded", b"")
        await harness.until(lambda: not list((harness.folder / "root" / "process").iterdir()))

    play("process", scenario)


def test_a_process_starts_with_default_signals_and_no_input(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(
            harness.run(("sh", "-c", "cat; grep Sig[IB] /proc/self/status"))
        )
        masks = [int(line.split()[1], 16) for line in end.stdout.decode().splitlines()]
        assert [mask & 0x7FFFFFFF for mask in masks] == [0, 0]  # above are the C library's own

    play("process", scenario)
