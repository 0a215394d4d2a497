"""The `python` driver: calls, their values and errors, and warm interpreters."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mycel.drivers.python.interpreter_output import HeadAndTail
from mycel.drivers.python.interpreter_records import clock
from mycel.testing.drivers.conformance import Harness
from mycel.testing.drivers.conformance_harness import JOB, LANE

from .conftest import Play
from .subjects import deed


def test_values_go_in_and_come_back(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        values: tuple[Any, ...] = (None, 1, "grün", [1.5, {"a": None}], {"x": []})
        for value in values:
            end = await harness.result_of(deed(harness, "value", value))
            assert (end.state, json.loads(end.value)) == ("succeeded", value)
        env = (("PYTHONPATH", str(harness.folder / "modules")),)
        named = harness.run(function="deeds:value", arguments={"x": 7}, env=env)
        assert (await harness.result_of(named)).value == b"7"

    play("python", scenario)


def test_an_exception_is_told_with_its_traceback(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(deed(harness, "boom", "no luck\nat all"))
        assert end.state == "failed"
        lines = end.error.splitlines()
        assert lines[0] == "ValueError: no luck"
        assert lines[1] == "Traceback (most recent call last):"
        assert "deeds.py" in lines[2]
        assert "interpreter" not in end.error
        wrong = await harness.result_of(deed(harness, "value"))
        assert wrong.error.startswith("TypeError: value() missing 1 required")
        endless = await harness.result_of(deed(harness, "boom", "x" * 100_000))
        assert len(endless.error) < 40_000

    play("python", scenario)


def test_a_call_that_holds_the_interpreter_lock_is_told_to_have_started(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        run = deed(harness, "clutch", 1 << 40)
        harness.submit(run)
        await harness.until(lambda: run.attempt in harness.recorder.starts)
        harness.driver.kill([run.attempt])
        await harness.all_ended()
        end = harness.recorder.ends[run.attempt]
        assert (end.state, end.started_at) == ("cancelled", harness.recorder.starts[run.attempt])

    play("python", scenario)


@pytest.mark.parametrize("moment", ["nan", "inf", "-inf", "1e300", "-5"])
def test_times_are_told_within_reason_whatever_a_task_makes_of_its_clock(
    play: Play, moment: str
) -> None:
    async def scenario(harness: Harness) -> None:
        before = clock()
        for _ in range(2):
            end = await harness.result_of(deed(harness, "set_clock", moment))
            assert before <= end.started_at <= end.ended_at <= clock()

    play("python", scenario)


@pytest.mark.parametrize("attempt", [0, 12345])
def test_a_call_that_denies_that_it_runs_is_stopped_all_the_same(
    play: Play, attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mycel.drivers.python.interpreter_link.BEGIN_SECONDS_MAX", 0.3)
    monkeypatch.setattr("mycel.drivers.python.interpreter_link.START_SECONDS_MAX", 3600.0)

    async def scenario(harness: Harness) -> None:
        note = harness.folder / "note"
        late = deed(harness, "deny", attempt, str(note), timeout=0.2)
        assert (await harness.result_of(late)).state == "timed_out"
        note.unlink()
        unwanted = deed(harness, "deny", attempt, str(note))
        harness.submit(unwanted)
        await harness.until(note.exists)
        harness.driver.kill([unwanted.attempt])
        assert (await harness.end_of(unwanted)).state == "cancelled"

    play("python", scenario)


def test_a_result_is_json_of_some_depth_whoever_encoded_it(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        assert (await harness.result_of(deed(harness, "nested", 100))).state == "succeeded"
        end = await harness.result_of(deed(harness, "nested", 101))
        assert (end.state, end.value, end.driver_fault) == ("failed", b"", False)
        assert end.error.startswith("the result is nested more than 100 levels deep")
        for forged in ("{what", "[" * 20_000, '"\xff"', "1 2"):
            end = await harness.result_of(deed(harness, "forge", forged))
            assert (end.state, end.value, end.driver_fault) == ("failed", b"", False)
            assert end.error.startswith("the result is ")

    play("python", scenario)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("deeds:a_set", "the result of 'deeds:a_set' is not JSON: Object of type set"),
        ("deeds:nothing", "module 'deeds' has no function 'nothing'"),
        ("deeds:not_callable", "'deeds:not_callable' is not a function"),
        ("no_such_module:call", "cannot import 'no_such_module' from"),
        ("deeds", "'deeds' does not name a function: write 'module:function'"),
        ("", "'' does not name a function"),
    ],
)
def test_what_a_function_can_do_wrong(function: str, error: str, play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        env = (("PYTHONPATH", str(harness.folder / "modules")),)
        end = await harness.result_of(harness.run(function=function, env=env))
        assert (end.state, end.driver_fault) == ("failed", False)
        assert error in end.error.splitlines()[0]

    play("python", scenario)


def test_a_value_over_the_limit_is_an_error(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        fits = await harness.result_of(deed(harness, "big", 998))
        assert (fits.state, len(fits.value)) == ("succeeded", 1000)
        over = await harness.result_of(deed(harness, "big", 999))
        assert over.state == "failed"
        assert "1001 bytes" in over.error

    play("python", scenario, value_bytes_max=1000)


def test_a_large_value_arrives_whole(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(deed(harness, "big", 1_000_000))
        assert json.loads(end.value) == "x" * 1_000_000

    play("python", scenario)


def test_the_end_of_an_interpreter_costs_the_task_that_ended_it(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        exits = await harness.result_of(deed(harness, "leave", 3))
        assert (exits.state, exits.exit_code) == ("failed", 3)
        assert exits.error.startswith("SystemExit")
        before = [deed(harness, "value", n) for n in range(30)]
        vanishing, behind = deed(harness, "vanish", 7), deed(harness, "value", 30)
        *values, end, last = await harness.results_of(*before, vanishing, behind)
        assert [one.value for one in (*values, last)] == [b"%d" % n for n in range(31)]
        assert (end.state, end.exit_code, end.driver_fault) == ("failed", 7, False)
        assert "exit code 7" in end.error
        assert behind.attempt in harness.recorder.given_back

    play("python", scenario)


def test_a_call_that_breaks_its_interpreters_protocol_is_to_blame(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        async with asyncio.timeout(60):  # given back, it would never end
            end = await harness.result_of(deed(harness, "babble"))
        assert (end.state, end.crashed) == ("failed", True)
        assert (await harness.result_of(deed(harness, "value", 1))).state == "succeeded"

    play("python", scenario)


def test_a_fork_that_comes_back_does_not_work_on(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        first, second = deed(harness, "forked"), deed(harness, "value", 2)
        ends = await harness.results_of(first, second)
        assert [end.value for end in ends] == [b'"back"', b"2"]

    play("python", scenario)


def test_prints_are_captured_task_by_task(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        runs = [deed(harness, "say", word) for word in ("one", "two")]
        quiet = deed(harness, "value", 1)
        *ends, silent = await harness.results_of(*runs, quiet)
        assert [end.stdout for end in ends] == [b"one\n", b"two\n"]
        assert [end.stderr for end in ends] == [b"ONE\n", b"TWO\n"]
        assert silent.stdout == b""
        long = await harness.result_of(deed(harness, "say", "a" * 5000 + "z"))
        assert len(long.stdout) <= 4096
        assert long.stdout.startswith(b"aaa")
        assert long.stdout.endswith(b"az\n")

    play("python", scenario, output_bytes_max=4096)


def test_the_environment_of_a_call(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        names = ("MYCEL_JOB_ID", "MYCEL_TASK_ID", "MYCEL_ATTEMPT", "COLOUR")
        env = (("COLOUR", "grün"),)
        runs = [deed(harness, "surroundings", *names, env=env, number=n) for n in (1, 2)]
        for run, end in zip(runs, await harness.results_of(*runs), strict=True):
            seen = json.loads(end.value)
            assert list(seen.values()) == [JOB, run.task_id, str(run.number), "grün"]

    play("python", scenario)


def test_each_call_finds_an_empty_working_folder(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        async def check() -> None:
            here, workdir, content = json.loads(
                (await harness.result_of(deed(harness, "where"))).value
            )
            assert here == workdir
            assert Path(workdir).parent == harness.folder / "root" / "python"
            assert content == []

        await check()
        await harness.result_of(deed(harness, "settle"))
        for _ in range(2):
            for untidy in ("litter", "wander"):
                assert (await harness.result_of(deed(harness, untidy))).state == "succeeded"
                await check()

    play("python", scenario)


def test_user_code_sees_a_clean_interpreter(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(deed(harness, "first_place"))
        folder_is_first, argv, modules = json.loads(end.value)
        assert folder_is_first
        assert argv == [""]
        assert not {"mycel", "msgspec", "asyncio", "interpreter"} & set(modules)

    play("python", scenario)


def test_an_interpreter_serves_one_user_and_one_environment(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        async def used_by(**options: Any) -> int:
            end = await harness.result_of(deed(harness, "process_id", **options))
            return int(end.value)

        first = await used_by()
        assert await used_by() == first
        harness.driver.close_lane(LANE)
        other_user = await used_by(user="other")
        other_environment = await used_by(env=(("A", "1"),))
        assert len({first, other_user, other_environment}) == 3
        assert await used_by() == first
        assert await used_by(user="other") == other_user

    play("python", scenario)


def test_idle_interpreters_are_few_and_do_not_stay(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        for number in range(4):
            run = deed(harness, "process_id", env=(("A", str(number)),))
            await harness.result_of(run)
        harness.driver.close_lane(LANE)
        await harness.until(lambda: harness.driver.interpreter_count == 0)  # type: ignore[attr-defined]

    play("python", scenario, idle_interpreters_max=2, idle_seconds_max=0.1)


def test_an_interpreter_is_replaced_after_many_calls(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        process_ids = []
        for _ in range(6):
            end = await harness.result_of(deed(harness, "process_id"))
            process_ids.append(int(end.value))
        assert len(set(process_ids)) == 3
        assert process_ids == sorted(process_ids, key=process_ids.index)

    play("python", scenario, calls_max=2)


def test_an_interpreter_that_cannot_start_is_no_fault_of_the_task(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        env = (("PYTHONHOME", "/nowhere"),)
        end = await harness.result_of(harness.run(function="time:time", env=env))
        assert (end.state, end.driver_fault) == ("failed", True)
        assert "did not start" in end.error
        assert (await harness.result_of(harness.quick())).state == "succeeded"

    play("python", scenario)


def test_head_and_tail_of_what_fits_is_all_of_it() -> None:
    kept = HeadAndTail(1000)
    for _ in range(10):
        kept.write(b"x" * 100)
    assert kept.take() == b"x" * 1000
    assert kept.take() == b""
