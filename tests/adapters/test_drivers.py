"""What every driver promises, and what each of them does of its own."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mycel.drivers import UnknownDriver, create_driver
from mycel.drivers.arguments import BadArguments, fill_command
from mycel.drivers.interface import LONG_SECONDS
from mycel.drivers.interpreter_output import HeadAndTail

from .drivers_stage import (
    JOB,
    KINDS,
    LANE,
    OTHER_LANE,
    Recorder,
    Stage,
    is_gone,
    stage_of,
)

Scenario = Callable[[Stage], Awaitable[None]]
Play = Callable[..., None]

every_driver = pytest.mark.parametrize("kind", KINDS)
real_driver = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memory"])

MODULE = """
import os, sys, time, subprocess, pathlib
def value(x): return x
def boom(text): raise ValueError(text)
def say(text):
    print(text)
    print(text.upper(), file=sys.stderr)
def leave(code): sys.exit(code)
def vanish(code): os._exit(code)
def a_set(): return {1, 2}
def not_a_number(): return float("nan")
def big(size): return "x" * size
def where(): return [os.getcwd(), os.environ["MYCEL_WORKDIR"], sorted(os.listdir())]
def litter():
    open("file", "w").close(); os.mkdir("folder"); open("folder/file", "w").close()
def wander(): os.chdir("/")
def settle(): time.sleep(0.2)
def surroundings(*names): return {name: os.environ.get(name) for name in names}
def process_id(): return os.getpid()
def first_place(): return [sys.path[0] == os.environ["MYCEL_WORKDIR"], sys.argv, list(sys.modules)]
def with_grandchild(note):
    child = subprocess.Popen(["sleep", "1000"])
    pathlib.Path(note).write_text(f"{os.getpid()} {child.pid}")
    child.wait()
def forked():
    os.fork()
    return "back"
def hog():
    sum(range(10**12))
not_callable = {}
"""


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario on a stage."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "deeds.py").write_text(MODULE)

    def play_it(kind: str, scenario: Scenario, **options: Any) -> None:
        async def run() -> None:
            async with stage_of(kind, tmp_path, **options) as stage:
                await scenario(stage)

        asyncio.run(run())

    return play_it


def deed(stage: Stage, name: str, *arguments: Any, **options: Any) -> Any:
    """A call of a function in the module above."""
    env = (("PYTHONPATH", str(stage.folder / "modules")), *options.pop("env", ()))
    function = f"deeds:{name}"
    return stage.run(function=function, arguments=list(arguments), env=env, **options)


# ── what every driver promises ──


@every_driver
def test_a_lane_runs_its_attempts_in_order(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.result_of(stage.quick())
        runs = [stage.quick() for _ in range(20)]
        ends = await stage.results_of(*runs)
        assert {end.state for end in ends} == {"succeeded"}
        assert all(end.started_at <= end.ended_at for end in ends)
        assert all(a.ended_at <= b.started_at for a, b in itertools.pairwise(ends))

    play(kind, scenario)


@every_driver
def test_a_thousand_quick_ones_through_two_lanes(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        for _ in range(9):
            stage.submit(*(stage.quick() for _ in range(50)), lane=LANE)
            stage.submit(*(stage.quick() for _ in range(50)), lane=OTHER_LANE)
        ends = await stage.results_of(*(stage.quick() for _ in range(100)))
        await stage.all_ended()
        assert {end.state for end in ends} == {"succeeded"}
        assert {end.state for end in stage.recorder.ends.values()} == {"succeeded"}

    play(kind, scenario)


@every_driver
def test_a_long_head_is_told_of_and_gives_back_what_waits(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        before, head, *behind = stage.quick(), stage.slow(), *(stage.quick() for _ in range(3))
        stage.submit(before, head, *behind)
        await stage.until(lambda: len(stage.recorder.given_back) == 3)
        assert stage.recorder.given_back == [run.attempt for run in behind]
        assert head.attempt in stage.recorder.starts
        assert before.attempt in stage.recorder.ends
        late = stage.quick()
        stage.submit(late)
        await stage.until(lambda: late.attempt in stage.recorder.given_back)
        elsewhere = stage.quick()
        stage.submit(elsewhere, lane=OTHER_LANE)
        await stage.end_of(elsewhere)
        stage.driver.kill([head.attempt])
        end = await stage.end_of(head)
        assert end.started_at == stage.recorder.starts[head.attempt]
        assert end.ended_at - end.started_at >= LONG_SECONDS

    play(kind, scenario)


@every_driver
def test_withdraw_takes_what_waits_and_leaves_the_rest(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        head, waiting, ended = stage.slow(), stage.quick(), stage.quick()
        await stage.result_of(ended)
        stage.submit(head, waiting)
        stage.driver.withdraw([waiting.attempt, ended.attempt])
        await stage.until(lambda: stage.recorder.taken_back)
        assert stage.recorder.taken_back == [waiting.attempt]
        await stage.start_of(head)
        stage.driver.withdraw([head.attempt])
        stage.driver.kill([head.attempt])
        assert (await stage.end_of(head)).state == "cancelled"

    play(kind, scenario)


@every_driver
def test_kill_of_one_that_waits_withdraws_it(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        head, waiting, last = stage.quick(), stage.slow(), stage.quick()
        stage.submit(head, waiting, last)
        stage.driver.kill([waiting.attempt])
        await stage.all_ended()
        assert stage.recorder.taken_back == [waiting.attempt]

    play(kind, scenario)


@every_driver
def test_kill_of_one_that_runs_cancels_it_and_the_lane_goes_on(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        head = stage.slow()
        stage.submit(head)
        await stage.start_of(head)
        stage.driver.kill([head.attempt])
        stage.driver.kill([head.attempt])
        assert (await stage.end_of(head)).state == "cancelled"
        assert (await stage.result_of(stage.quick())).state == "succeeded"

    play(kind, scenario)


@every_driver
def test_a_time_out_ends_the_task_and_not_the_lane(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        overdue = stage.slow(timeout=0.2)
        end = await stage.result_of(overdue)
        assert end.state == "timed_out"
        assert "timed out" in end.error
        assert 0.2 <= end.ended_at - end.started_at < 20
        assert (await stage.result_of(stage.quick())).state == "succeeded"

    play(kind, scenario)


@every_driver
def test_a_failure_is_told_and_the_lane_goes_on(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        end, good = await stage.results_of(stage.failing(), stage.quick())
        assert end.state == "failed"
        assert end.error
        assert not end.driver_fault
        assert good.state == "succeeded"

    play(kind, scenario)


@every_driver
def test_a_crash_costs_that_task_alone(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        before = [stage.quick() for _ in range(5)]
        after = [stage.quick() for _ in range(5)]
        ends = await stage.results_of(*before, stage.crashing(), *after)
        assert [end.state for end in ends] == ["succeeded"] * 5 + ["failed"] + ["succeeded"] * 5
        assert (await stage.result_of(stage.quick())).state == "succeeded"

    play(kind, scenario)


@every_driver
def test_close_ends_everything(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        head, waiting = stage.slow(), stage.quick()
        stage.submit(head)
        await stage.start_of(head)
        stage.submit(waiting, lane=OTHER_LANE)
        await stage.driver.close()
        assert stage.recorder.ends[head.attempt].state == "cancelled"

    play(kind, scenario)


@every_driver
def test_a_closed_lane_can_be_opened_again(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        for _ in range(3):
            assert (await stage.result_of(stage.quick())).state == "succeeded"
            stage.driver.close_lane(LANE)

    play(kind, scenario)


def test_a_dead_worker_is_silent(tmp_path: Path) -> None:
    async def run() -> None:
        async with stage_of("memory", tmp_path) as stage:
            recorder: Recorder = stage.recorder
            stage.submit(stage.quick(), stage.slow())
            stage.driver.die()  # type: ignore[attr-defined]
            assert stage.clock is not None
            while stage.clock.step():
                pass
            assert not recorder.order
            stage.submitted.clear()

    asyncio.run(run())


# ── processes of both real drivers ──


@real_driver
@pytest.mark.parametrize("how", ["time-out", "kill"])
def test_the_whole_process_group_goes(kind: str, how: str, play: Play, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        note = tmp_path / "note"
        timeout = 0.5 if how == "time-out" else None
        # The leader dies of SIGTERM; its child does not listen to it.
        script = f"(trap '' TERM; sleep 1000) & echo $$ $! > {note}.new; mv {note}.new {note}; wait"
        if kind == "python":
            run = deed(stage, "with_grandchild", str(note), timeout=timeout)
        else:
            run = stage.run(("sh", "-c", script), timeout=timeout)
        stage.submit(run)
        await stage.until(lambda: note.exists() and note.read_text().strip())
        if how == "kill":
            stage.driver.kill([run.attempt])
        end = await stage.end_of(run)
        assert end.state == ("timed_out" if how == "time-out" else "cancelled")
        assert all(is_gone(int(word)) for word in note.read_text().split())

    play(kind, scenario)


@real_driver
def test_who_ignores_sigterm_is_killed_after_the_grace(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        if kind == "python":
            run = deed(stage, "hog", timeout=0.1)
        else:
            run = stage.run(("sh", "-c", "trap '' TERM; sleep 1000; sleep 1000"), timeout=0.1)
        end = await stage.result_of(run)
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
        [sys.executable, str(Path(__file__).with_name("drivers_worker.py")), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    async def watch() -> None:
        stage = Stage("process", None, Recorder(), tmp_path)  # type: ignore[arg-type]
        await stage.until(lambda: all(n.exists() and n.read_text().strip() for n in notes))
        process_ids = [int(note.read_text()) for note in notes]
        assert not any(is_gone(process_id) for process_id in process_ids)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        await stage.until(lambda: all(is_gone(process_id) for process_id in process_ids))

    try:
        asyncio.run(watch())
    finally:
        worker.kill()
        worker.wait()


@real_driver
def test_a_lost_helper_is_the_drivers_fault(kind: str, play: Play, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        note = tmp_path / "note"
        script = f"sleep 1000 & echo $$ $! > {note}; wait"
        if kind == "python":
            head = deed(stage, "with_grandchild", str(note))
        else:
            head = stage.run(("sh", "-c", script))
        stage.submit(head)
        await stage.until(lambda: note.exists() and note.read_text().strip())
        helper = stage.driver._helper  # type: ignore[attr-defined]
        os.kill(helper.process_id, signal.SIGKILL)
        end = await stage.end_of(head)
        assert (end.state, end.driver_fault) == ("failed", True)
        assert (await stage.result_of(stage.quick())).driver_fault
        process_ids = [int(word) for word in note.read_text().split()]
        await stage.until(lambda: all(is_gone(process_id) for process_id in process_ids))
        for left in (stage.folder / "root").iterdir():
            left.rmdir()

    play(kind, scenario)


@real_driver
def test_close_right_after_submit(kind: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.submit(stage.slow(), stage.quick())
        await asyncio.sleep(0)
        stage.submit(stage.slow(), lane=OTHER_LANE)

    play(kind, scenario)


@real_driver
def test_what_an_earlier_worker_left_is_cleared_away(kind: str, play: Play, tmp_path: Path) -> None:
    name = "lane-7" if kind == "process" else "interpreter-7"
    folder = tmp_path / "root" / name
    (folder / "deep").mkdir(parents=True)
    abandoned = subprocess.Popen(["sleep", "1000"], env={"MYCEL_WORKDIR": str(folder)})

    async def scenario(stage: Stage) -> None:
        assert not folder.exists()
        assert abandoned.wait() == -signal.SIGKILL

    play(kind, scenario)


# ── the process driver ──


def test_output_and_exit_code_of_a_process(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        end = await stage.result_of(stage.run(("sh", "-c", "echo out; echo err >&2; exit 3")))
        assert (end.state, end.exit_code) == ("failed", 3)
        assert (end.stdout, end.stderr) == (b"out\n", b"err\n")
        killed = await stage.result_of(stage.run(("sh", "-c", "kill -9 $$")))
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
    async def scenario(stage: Stage) -> None:
        end, after = await stage.results_of(stage.run(command), stage.quick())
        assert (end.state, end.driver_fault) == ("failed", False)
        assert error in end.error
        if "\0" not in command[:1]:
            assert end.exit_code == exit_code
        assert after.state == "succeeded"

    play("process", scenario)


def test_output_keeps_head_and_tail(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        end = await stage.result_of(stage.run(("sh", "-c", "echo first; seq 100000; echo last")))
        assert len(end.stdout) <= 4096
        assert end.stdout.startswith(b"first\n1\n")
        assert end.stdout.endswith(b"100000\nlast\n")
        assert b"bytes left out" in end.stdout

    play("process", scenario, output_bytes_max=4096)


def test_much_output_arrives_whole(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        end = await stage.result_of(stage.run(("seq", "300000")))
        assert end.stdout == b"".join(b"%d\n" % n for n in range(1, 300001))

    play("process", scenario)


def test_a_background_child_does_not_outlive_its_task(play: Play, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        note = tmp_path / "note"
        run = stage.run(("sh", "-c", f"sleep 1000 & echo $! > {note}; echo done"))
        end = await stage.result_of(run)
        assert (end.state, end.stdout) == ("succeeded", b"done\n")
        assert is_gone(int(note.read_text()))

    play("process", scenario)


def test_one_that_leaves_its_group_ends_with_the_helper(play: Play, tmp_path: Path) -> None:
    note = tmp_path / "note"

    async def scenario(stage: Stage) -> None:
        script = f"setsid sh -c 'echo $$ > {note}.new; mv {note}.new {note}; exec sleep 1000' &"
        run = stage.run(("sh", "-c", f"{script} while ! test -e {note}; do :; done"))
        assert (await stage.result_of(run)).state == "succeeded"

    play("process", scenario)
    assert is_gone(int(note.read_text()))


def test_the_environment_of_a_process(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "hidden")

    async def scenario(stage: Stage) -> None:
        run = stage.run(("env",), env=(("COLOUR", "grün"), ("LANG", "xx")), number=3)
        end = await stage.result_of(run)
        lines = dict(line.split("=", 1) for line in end.stdout.decode().splitlines())
        assert lines["COLOUR"] == "grün"
        assert lines["LANG"] == "xx"
        assert lines["PATH"] == os.environ["PATH"]
        assert lines["MYCEL_JOB_ID"] == JOB
        assert lines["MYCEL_TASK_ID"] == run.task_id
        assert lines["MYCEL_ATTEMPT"] == "3"
        assert Path(lines["MYCEL_WORKDIR"]).parent == stage.folder / "root"
        assert "SECRET_OF_THE_WORKER" not in lines

    play("process", scenario)


def test_the_command_is_searched_in_the_tasks_own_path(play: Play, tmp_path: Path) -> None:
    program = tmp_path / "greet"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)

    async def scenario(stage: Stage) -> None:
        end = await stage.result_of(stage.run(("greet",), env=(("PATH", str(tmp_path)),)))
        assert end.stdout == b"hello\n"

    play("process", scenario)


def test_each_process_finds_an_empty_folder_that_is_removed(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        script = 'test "$PWD" = "$MYCEL_WORKDIR" && ls -A && touch file && mkdir -p deep/deeper'
        runs = [stage.run(("sh", "-c", script)) for _ in range(3)]
        for end in await stage.results_of(*runs):
            assert (end.state, end.stdout) == ("succeeded", b"")
        await stage.until(lambda: not list((stage.folder / "root").iterdir()))

    play("process", scenario)


def test_a_process_starts_with_default_signals_and_no_input(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        end = await stage.result_of(stage.run(("sh", "-c", "cat; grep Sig[IB] /proc/self/status")))
        masks = [int(line.split()[1], 16) for line in end.stdout.decode().splitlines()]
        assert [mask & 0x7FFFFFFF for mask in masks] == [0, 0]  # above are the C library's own

    play("process", scenario)


@pytest.mark.parametrize(
    ("command", "arguments", "filled"),
    [
        (("echo",), ["a", 1, None, {"b": [True]}], ("echo", "a", "1", "null", '{"b":[true]}')),
        (("run", "--x={x}", "{y}{x}"), {"x": 1.5, "y": "é"}, ("run", "--x=1.5", "é1.5")),
        (("awk", "{print $1} {missing}"), {"x": 1}, ("awk", "{print $1} {missing}")),
        (("echo", "{a}"), {"a": "{b}", "b": "no"}, ("echo", "{b}")),
        (("echo", "{{a}}"), {"a": 1}, ("echo", "{1}")),
        (("echo",), {}, ("echo",)),
        (
            ("run", "--lr=${lr}", "${a.b[1]}"),
            {"lr": 0.1, "a": {"b": [0, 7]}},
            ("run", "--lr=0.1", "7"),
        ),
        (("sh", "${HOME} ${x:-1} $${lr}"), {"lr": 1}, ("sh", "${HOME} ${x:-1} ${lr}")),
    ],
)
def test_arguments_fill_the_command(
    command: tuple[str, ...], arguments: object, filled: tuple[str, ...]
) -> None:
    assert fill_command(command, json.dumps(arguments).encode()) == filled


@pytest.mark.parametrize("arguments", [b"3", b"{", b'"text"', b"null"])
def test_arguments_of_another_kind_are_the_tasks_fault(arguments: bytes) -> None:
    with pytest.raises(BadArguments):
        fill_command(("echo",), arguments)


# ── the python driver ──


def test_values_go_in_and_come_back(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        values: tuple[Any, ...] = (None, 1, "grün", [1.5, {"a": None}], {"x": []})
        for value in values:
            end = await stage.result_of(deed(stage, "value", value))
            assert (end.state, json.loads(end.value)) == ("succeeded", value)
        env = (("PYTHONPATH", str(stage.folder / "modules")),)
        named = stage.run(function="deeds:value", arguments={"x": 7}, env=env)
        assert (await stage.result_of(named)).value == b"7"

    play("python", scenario)


def test_an_exception_is_told_with_its_traceback(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        end = await stage.result_of(deed(stage, "boom", "no luck\nat all"))
        assert end.state == "failed"
        lines = end.error.splitlines()
        assert lines[0] == "ValueError: no luck"
        assert lines[1] == "Traceback (most recent call last):"
        assert "deeds.py" in lines[2]
        assert "interpreter" not in end.error
        wrong = await stage.result_of(deed(stage, "value"))
        assert wrong.error.startswith("TypeError: value() missing 1 required")
        endless = await stage.result_of(deed(stage, "boom", "x" * 100_000))
        assert len(endless.error) < 40_000

    play("python", scenario)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("deeds:a_set", "the result of 'deeds:a_set' is not JSON: Object of type set"),
        ("deeds:not_a_number", "is not JSON: Out of range float"),
        ("deeds:nothing", "module 'deeds' has no function 'nothing'"),
        ("deeds:not_callable", "'deeds:not_callable' is not a function"),
        ("no_such_module:call", "cannot import 'no_such_module' from"),
        ("deeds", "'deeds' does not name a function: write 'module:function'"),
        ("", "'' does not name a function"),
    ],
)
def test_what_a_function_can_do_wrong(function: str, error: str, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        env = (("PYTHONPATH", str(stage.folder / "modules")),)
        end = await stage.result_of(stage.run(function=function, env=env))
        assert (end.state, end.driver_fault) == ("failed", False)
        assert error in end.error.splitlines()[0]

    play("python", scenario)


def test_a_value_over_the_limit_is_an_error(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        fits = await stage.result_of(deed(stage, "big", 998))
        assert (fits.state, len(fits.value)) == ("succeeded", 1000)
        over = await stage.result_of(deed(stage, "big", 999))
        assert over.state == "failed"
        assert "1001 bytes" in over.error

    play("python", scenario, value_bytes_max=1000)


def test_a_large_value_arrives_whole(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        end = await stage.result_of(deed(stage, "big", 1_000_000))
        assert json.loads(end.value) == "x" * 1_000_000

    play("python", scenario)


def test_the_end_of_an_interpreter_costs_the_task_that_ended_it(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        exits = await stage.result_of(deed(stage, "leave", 3))
        assert (exits.state, exits.exit_code) == ("failed", 3)
        assert exits.error.startswith("SystemExit")
        before = [deed(stage, "value", n) for n in range(30)]
        vanishing, behind = deed(stage, "vanish", 7), deed(stage, "value", 30)
        *values, end, last = await stage.results_of(*before, vanishing, behind)
        assert [one.value for one in (*values, last)] == [b"%d" % n for n in range(31)]
        assert (end.state, end.exit_code, end.driver_fault) == ("failed", 7, False)
        assert "exit code 7" in end.error
        assert behind.attempt in stage.recorder.given_back

    play("python", scenario)


def test_a_fork_that_comes_back_does_not_work_on(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        first, second = deed(stage, "forked"), deed(stage, "value", 2)
        ends = await stage.results_of(first, second)
        assert [end.value for end in ends] == [b'"back"', b"2"]

    play("python", scenario)


def test_prints_are_captured_task_by_task(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        runs = [deed(stage, "say", word) for word in ("one", "two")]
        quiet = deed(stage, "value", 1)
        *ends, silent = await stage.results_of(*runs, quiet)
        assert [end.stdout for end in ends] == [b"one\n", b"two\n"]
        assert [end.stderr for end in ends] == [b"ONE\n", b"TWO\n"]
        assert silent.stdout == b""
        long = await stage.result_of(deed(stage, "say", "a" * 5000 + "z"))
        assert len(long.stdout) <= 4096
        assert long.stdout.startswith(b"aaa")
        assert long.stdout.endswith(b"az\n")

    play("python", scenario, output_bytes_max=4096)


def test_the_environment_of_a_call(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        names = ("MYCEL_JOB_ID", "MYCEL_TASK_ID", "MYCEL_ATTEMPT", "COLOUR")
        env = (("COLOUR", "grün"),)
        runs = [deed(stage, "surroundings", *names, env=env, number=n) for n in (1, 2)]
        for run, end in zip(runs, await stage.results_of(*runs), strict=True):
            seen = json.loads(end.value)
            assert list(seen.values()) == [JOB, run.task_id, str(run.number), "grün"]

    play("python", scenario)


def test_each_call_finds_an_empty_working_folder(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async def check() -> None:
            here, workdir, content = json.loads((await stage.result_of(deed(stage, "where"))).value)
            assert here == workdir
            assert Path(workdir).parent == stage.folder / "root"
            assert content == []

        await check()
        await stage.result_of(deed(stage, "settle"))
        for _ in range(2):
            for untidy in ("litter", "wander"):
                assert (await stage.result_of(deed(stage, untidy))).state == "succeeded"
                await check()

    play("python", scenario)


def test_user_code_sees_a_clean_interpreter(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        end = await stage.result_of(deed(stage, "first_place"))
        folder_is_first, argv, modules = json.loads(end.value)
        assert folder_is_first
        assert argv == [""]
        assert not {"mycel", "msgspec", "asyncio", "interpreter"} & set(modules)

    play("python", scenario)


def test_an_interpreter_serves_one_user_and_one_environment(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async def used_by(**options: Any) -> int:
            end = await stage.result_of(deed(stage, "process_id", **options))
            return int(end.value)

        first = await used_by()
        assert await used_by() == first
        stage.driver.close_lane(LANE)
        other_user = await used_by(user="other")
        other_environment = await used_by(env=(("A", "1"),))
        assert len({first, other_user, other_environment}) == 3
        assert await used_by() == first
        assert await used_by(user="other") == other_user

    play("python", scenario)


def test_idle_interpreters_are_few_and_do_not_stay(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        for number in range(4):
            run = deed(stage, "process_id", env=(("A", str(number)),))
            await stage.result_of(run)
        stage.driver.close_lane(LANE)
        await stage.until(lambda: stage.driver.interpreter_count == 0)  # type: ignore[attr-defined]

    play("python", scenario, idle_interpreters_max=2, idle_seconds_max=0.1)


def test_an_interpreter_is_replaced_after_many_calls(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        process_ids = []
        for _ in range(6):
            end = await stage.result_of(deed(stage, "process_id"))
            process_ids.append(int(end.value))
        assert len(set(process_ids)) == 3
        assert process_ids == sorted(process_ids, key=process_ids.index)

    play("python", scenario, calls_max=2)


def test_an_interpreter_that_cannot_start_is_no_fault_of_the_task(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        env = (("PYTHONHOME", "/nowhere"),)
        end = await stage.result_of(stage.run(function="time:time", env=env))
        assert (end.state, end.driver_fault) == ("failed", True)
        assert "did not start" in end.error
        assert (await stage.result_of(stage.quick())).state == "succeeded"

    play("python", scenario)


# ── small parts ──


def test_head_and_tail_of_what_fits_is_all_of_it() -> None:
    kept = HeadAndTail(1000)
    for _ in range(10):
        kept.write(b"x" * 100)
    assert kept.take() == b"x" * 1000
    assert kept.take() == b""


def test_an_unknown_driver_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownDriver, match=r"'teleport'.*process, python"):
        create_driver("teleport", None)  # type: ignore[arg-type]


# ── a working folder that was made ready ──


def _ready(stage: Stage, name: str) -> Path:
    folder = stage.folder / "ready" / name
    folder.mkdir(parents=True)
    return folder


def test_a_process_works_in_the_folder_that_was_made_ready_for_it(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        folder = _ready(stage, "one")
        (folder / "input").write_text("here")
        copying = stage.run(("sh", "-c", 'cp input "$MYCEL_WORKDIR/output"'), folder=str(folder))
        plain = stage.run(("sh", "-c", "test ! -e input"))
        ends = await stage.results_of(copying, plain)
        assert [end.state for end in ends] == ["succeeded", "succeeded"], ends
        assert (folder / "output").read_text() == "here"

    play("process", scenario)


def test_a_call_finds_its_module_and_files_in_the_folder_made_ready_for_it(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        ends = []
        for word in ("one", "two"):
            folder = _ready(stage, word)
            (folder / "brought.py").write_text(
                f"def call():\n    open('output', 'w').write('{word}')\n    return '{word}'\n"
            )
            ends.append(
                await stage.result_of(stage.run(function="brought:call", folder=str(folder)))
            )
            assert (folder / "output").read_text() == word
        assert [end.value for end in ends] == [b'"one"', b'"two"']
        gone = await stage.result_of(stage.run(function="brought:call"))
        assert gone.state == "failed"
        assert "brought" in gone.error

    play("python", scenario)


def test_several_calls_that_wait_in_one_lane_have_their_own_folders(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.result_of(deed(stage, "value", 1))
        folders = [_ready(stage, str(number)) for number in range(5)]
        runs = [deed(stage, "litter", folder=str(folder)) for folder in folders]
        await stage.results_of(*runs)
        assert all((folder / "folder" / "file").exists() for folder in folders)
        where = await stage.result_of(deed(stage, "where"))
        found = json.loads(where.value)
        assert found[0] == found[1]
        assert found[2] == []

    play("python", scenario)
