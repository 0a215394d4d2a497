"""What every driver promises, as scenarios that any driver can be put through.

For whoever writes a driver: describe it as a `Subject`, and let each promise be kept, for
example with pytest:

    @pytest.mark.parametrize("promise", PROMISES, ids=named)
    def test_it_keeps_its_promises(promise, tmp_path):
        keep(promise, MySubject(), tmp_path)

`docs/guides/drivers.md` has a whole example.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from mycel.drivers.interface import LONG_SECONDS

from .conformance_harness import LANE, OTHER_LANE, Harness, Subject, open_harness

Promise = Callable[[Harness], Awaitable[None]]

__all__ = ["PROMISES", "Harness", "Promise", "Subject", "keep", "named"]


def keep(promise: Promise, subject: Subject, folder: Path, *, virtual: bool = False) -> None:
    """Puts a new driver of that kind through one scenario; an AssertionError says what broke."""

    async def perform() -> None:
        async with open_harness(subject, folder, virtual=virtual) as harness:
            await promise(harness)

    asyncio.run(perform())


def named(promise: Promise) -> str:
    return getattr(promise, "__name__", "promise")


async def a_lane_runs_its_attempts_in_order(harness: Harness) -> None:
    await harness.result_of(harness.quick())
    ends = await harness.results_of(*(harness.quick() for _ in range(5)))
    assert {end.state for end in ends} == {harness.subject.quick_state}
    assert all(end.started_at <= end.ended_at for end in ends)
    in_order = sorted(ends, key=lambda end: end.started_at)
    assert all(a.ended_at <= b.started_at for a, b in itertools.pairwise(in_order))


async def two_lanes_run_at_once(harness: Harness) -> None:
    first, second = harness.slow(), harness.slow()
    harness.submit(first, lane=LANE)
    harness.submit(second, lane=OTHER_LANE)
    await harness.start_of(first)
    await harness.start_of(second)
    harness.driver.kill([first.attempt, second.attempt])
    await harness.all_ended()


async def a_long_head_is_told_of_and_gives_back_what_waits(harness: Harness) -> None:
    head, *behind = harness.slow(), *(harness.quick() for _ in range(3))
    harness.submit(head, *behind)
    await harness.until(lambda: len(harness.recorder.given_back) == 3)
    assert harness.recorder.given_back == [run.attempt for run in behind]
    assert head.attempt in harness.recorder.starts
    late = harness.quick()
    harness.submit(late)
    await harness.until(lambda: late.attempt in harness.recorder.given_back)
    elsewhere = harness.quick()
    harness.submit(elsewhere, lane=OTHER_LANE)
    await harness.end_of(elsewhere)
    harness.driver.kill([head.attempt])
    end = await harness.end_of(head)
    assert end.started_at == harness.recorder.starts[head.attempt]
    assert end.ended_at - end.started_at >= LONG_SECONDS


async def withdraw_takes_what_waits_and_leaves_the_rest(harness: Harness) -> None:
    head, waiting, ended = harness.slow(), harness.quick(), harness.quick()
    await harness.result_of(ended)
    harness.submit(head, waiting)
    harness.driver.withdraw([waiting.attempt, ended.attempt])
    await harness.until(lambda: harness.recorder.taken_back)
    assert harness.recorder.taken_back == [waiting.attempt]
    await harness.start_of(head)
    harness.driver.withdraw([head.attempt])
    harness.driver.kill([head.attempt])
    assert (await harness.end_of(head)).state == "cancelled"


async def kill_of_one_that_waits_withdraws_it(harness: Harness) -> None:
    head, waiting, last = harness.quick(), harness.slow(), harness.quick()
    harness.submit(head, waiting, last)
    harness.driver.kill([waiting.attempt])
    await harness.all_ended()
    assert harness.recorder.taken_back == [waiting.attempt]


async def kill_of_one_that_runs_cancels_it_and_the_lane_goes_on(harness: Harness) -> None:
    head = harness.slow()
    harness.submit(head)
    await harness.start_of(head)
    harness.driver.kill([head.attempt])
    harness.driver.kill([head.attempt])
    assert (await harness.end_of(head)).state == "cancelled"
    assert (await harness.result_of(harness.quick())).state == harness.subject.quick_state


async def a_time_out_ends_the_task_and_not_the_lane(harness: Harness) -> None:
    end = await harness.result_of(harness.slow(timeout=0.2))
    assert end.state == "timed_out"
    assert "timed out" in end.error
    assert 0.2 <= end.ended_at - end.started_at < 20
    assert (await harness.result_of(harness.quick())).state == harness.subject.quick_state


async def a_failure_is_told_and_the_lane_goes_on(harness: Harness) -> None:
    end, quick = await harness.results_of(harness.failing(), harness.quick())
    assert end.state == "failed"
    assert end.error
    assert not end.driver_fault
    assert quick.state == harness.subject.quick_state


async def a_crash_costs_that_task_alone(harness: Harness) -> None:
    before = [harness.quick() for _ in range(3)]
    after = [harness.quick() for _ in range(3)]
    ends = await harness.results_of(*before, harness.crashing(), *after)
    quick = [harness.subject.quick_state] * 3
    assert [end.state for end in ends] == [*quick, "failed", *quick]
    assert (await harness.result_of(harness.quick())).state == harness.subject.quick_state


async def what_a_long_task_writes_is_told_while_it_runs(harness: Harness) -> None:
    await harness.result_of(harness.quick())
    work = harness.subject.talking(harness.folder)
    if work is None:
        return
    run = harness.run_of(work)
    harness.submit(run)
    texts = harness.recorder.texts
    await harness.until(lambda: b"".join(one.data for one in texts) == b"before\n")
    assert {(one.attempt, one.stream, one.offset) for one in texts[:1]} == {(run.attempt, 1, 0)}
    assert run.attempt not in harness.recorder.ends
    harness.driver.kill([run.attempt])
    await harness.end_of(run)


async def close_ends_everything(harness: Harness) -> None:
    head, waiting = harness.slow(), harness.quick()
    harness.submit(head)
    await harness.start_of(head)
    harness.submit(waiting, lane=OTHER_LANE)
    await harness.driver.close()
    assert harness.recorder.ends[head.attempt].state == "cancelled"


async def close_right_after_submit_ends_everything_too(harness: Harness) -> None:
    harness.submit(harness.slow(), harness.quick())
    await asyncio.sleep(0)
    harness.submit(harness.slow(), lane=OTHER_LANE)


async def a_closed_lane_can_be_opened_again(harness: Harness) -> None:
    for _ in range(3):
        assert (await harness.result_of(harness.quick())).state == harness.subject.quick_state
        harness.driver.close_lane(LANE)


PROMISES: Final[tuple[Promise, ...]] = (
    a_lane_runs_its_attempts_in_order,
    two_lanes_run_at_once,
    a_long_head_is_told_of_and_gives_back_what_waits,
    withdraw_takes_what_waits_and_leaves_the_rest,
    kill_of_one_that_waits_withdraws_it,
    kill_of_one_that_runs_cancels_it_and_the_lane_goes_on,
    a_time_out_ends_the_task_and_not_the_lane,
    a_failure_is_told_and_the_lane_goes_on,
    a_crash_costs_that_task_alone,
    what_a_long_task_writes_is_told_while_it_runs,
    close_ends_everything,
    close_right_after_submit_ends_everything_too,
    a_closed_lane_can_be_opened_again,
)
