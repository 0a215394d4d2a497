"""Whatever a task's end contains, it ends that task alone, and fits into a message."""

from __future__ import annotations

import pytest

from mycel.core.model.outcome_limits import OUTPUTS_BYTES_MAX, is_credible, made_credible
from mycel.core.model.work import Finished
from mycel.core.ranges import ERROR_CHARACTERS_MAX
from mycel.testing.drivers.conformance import Harness

from .conftest import Play
from .subjects import deed

EXTREMES = [
    "exit with a long text",
    "exit with half a pair",
    "exit with a rude object",
    "exit with a twisted number",
    "exit with a large number",
    "a long message",
    "half a pair",
    "a rude error",
    "a long name",
    "an odd class",
    "a long chain",
    "many errors",
    "no end of calls",
    "a long output",
]


def sendable(end: Finished) -> Finished:
    """As a worker tells it."""
    told = end if is_credible(end) else made_credible(end)
    assert told.state == end.state
    assert len(told.error) <= ERROR_CHARACTERS_MAX
    told.error.encode()
    assert len(end.stdout) + len(end.stderr) <= 2 * OUTPUTS_BYTES_MAX
    return told


@pytest.mark.parametrize("which", EXTREMES)
def test_a_function_fails_alone_however_it_fails(play: Play, which: str) -> None:
    async def scenario(harness: Harness) -> None:
        before = await harness.result_of(deed(harness, "process_id"))
        end = await harness.result_of(deed(harness, "extreme", which))
        assert (end.state, end.crashed, end.driver_fault) == ("failed", False, False)
        assert sendable(end).error
        after = await harness.result_of(deed(harness, "process_id"))
        assert after.value == before.value, "its interpreter goes on"

    play("python", scenario)


@pytest.mark.parametrize("size", [(1 << 63) - 1, (1 << 64) - 1, 1 << 51])
def test_a_task_that_claims_impossible_memory_fails_alone(play: Play, size: int) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(deed(harness, "claim_memory", str(size)))
        assert (end.state, end.driver_fault, end.peak_memory) == ("failed", False, 0)
        assert f"{size} bytes" in end.error
        assert (await harness.result_of(deed(harness, "value", 7))).value == b"7"

    play("python", scenario)


@pytest.mark.parametrize("offset", [1 << 63, (1 << 64) - 1])
def test_output_at_an_impossible_place_is_not_told(play: Play, offset: int) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(deed(harness, "write_at", str(offset)))
        assert end.state == "succeeded"
        assert not harness.recorder.texts

    play("python", scenario)


def test_a_command_with_an_endless_name_fails_alone(play: Play) -> None:
    async def scenario(harness: Harness) -> None:
        for name in ("x" * 10_000_000, "/nowhere/" + "ä" * 100_000, "a\0b"):
            end = await harness.result_of(harness.run(command=(name,)))
            assert end.state == "failed"
            assert sendable(end).error
        assert (await harness.result_of(harness.run(command=("true",)))).state == "succeeded"

    play("process", scenario)


@pytest.mark.parametrize(
    "impossible",
    [
        Finished(1, "succeeded", exit_code=1 << 63),  # type: ignore[arg-type]
        Finished(1, "succeeded", peak_memory=-1),  # type: ignore[arg-type]
        Finished(1, "succeeded", cpu_seconds=float("nan")),  # type: ignore[arg-type]
        Finished(1, "succeeded", started_at=float("inf")),  # type: ignore[arg-type]
    ],
)
def test_an_end_that_cannot_be_is_a_failure(impossible: Finished) -> None:
    assert not is_credible(impossible)
    end = made_credible(impossible)
    assert is_credible(end)
    assert end.state == "failed"
    assert "cannot be" in end.error


def test_a_long_error_is_cut_and_changes_nothing_else() -> None:
    end = Finished(1, "timed_out", error="ä" * 1_000_000, exit_code=3)  # type: ignore[arg-type]
    told = made_credible(end)
    assert (told.state, told.exit_code) == ("timed_out", 3)
    assert len(told.error) <= ERROR_CHARACTERS_MAX
