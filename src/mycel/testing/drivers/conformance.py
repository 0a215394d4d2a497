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

from .conformance_stage import LANE, OTHER_LANE, Stage, Subject, staged

Promise = Callable[[Stage], Awaitable[None]]

__all__ = ["PROMISES", "Promise", "Stage", "Subject", "keep", "named"]


def keep(promise: Promise, subject: Subject, folder: Path, *, virtual: bool = False) -> None:
    """Puts a new driver of that kind through one scenario; an AssertionError says what broke."""

    async def perform() -> None:
        async with staged(subject, folder, virtual=virtual) as stage:
            await promise(stage)

    asyncio.run(perform())


def named(promise: Promise) -> str:
    return getattr(promise, "__name__", "promise")


async def a_lane_runs_its_attempts_in_order(stage: Stage) -> None:
    await stage.result_of(stage.quick())
    ends = await stage.results_of(*(stage.quick() for _ in range(5)))
    assert {end.state for end in ends} == {stage.subject.quick_state}
    assert all(end.started_at <= end.ended_at for end in ends)
    in_order = sorted(ends, key=lambda end: end.started_at)
    assert all(a.ended_at <= b.started_at for a, b in itertools.pairwise(in_order))


async def two_lanes_run_at_once(stage: Stage) -> None:
    first, second = stage.slow(), stage.slow()
    stage.submit(first, lane=LANE)
    stage.submit(second, lane=OTHER_LANE)
    await stage.start_of(first)
    await stage.start_of(second)
    stage.driver.kill([first.attempt, second.attempt])
    await stage.all_ended()


async def a_long_head_is_told_of_and_gives_back_what_waits(stage: Stage) -> None:
    head, *behind = stage.slow(), *(stage.quick() for _ in range(3))
    stage.submit(head, *behind)
    await stage.until(lambda: len(stage.recorder.given_back) == 3)
    assert stage.recorder.given_back == [run.attempt for run in behind]
    assert head.attempt in stage.recorder.starts
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


async def withdraw_takes_what_waits_and_leaves_the_rest(stage: Stage) -> None:
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


async def kill_of_one_that_waits_withdraws_it(stage: Stage) -> None:
    head, waiting, last = stage.quick(), stage.slow(), stage.quick()
    stage.submit(head, waiting, last)
    stage.driver.kill([waiting.attempt])
    await stage.all_ended()
    assert stage.recorder.taken_back == [waiting.attempt]


async def kill_of_one_that_runs_cancels_it_and_the_lane_goes_on(stage: Stage) -> None:
    head = stage.slow()
    stage.submit(head)
    await stage.start_of(head)
    stage.driver.kill([head.attempt])
    stage.driver.kill([head.attempt])
    assert (await stage.end_of(head)).state == "cancelled"
    assert (await stage.result_of(stage.quick())).state == stage.subject.quick_state


async def a_time_out_ends_the_task_and_not_the_lane(stage: Stage) -> None:
    end = await stage.result_of(stage.slow(timeout=0.2))
    assert end.state == "timed_out"
    assert "timed out" in end.error
    assert 0.2 <= end.ended_at - end.started_at < 20
    assert (await stage.result_of(stage.quick())).state == stage.subject.quick_state


async def a_failure_is_told_and_the_lane_goes_on(stage: Stage) -> None:
    end, quick = await stage.results_of(stage.failing(), stage.quick())
    assert end.state == "failed"
    assert end.error
    assert not end.driver_fault
    assert quick.state == stage.subject.quick_state


async def a_crash_costs_that_task_alone(stage: Stage) -> None:
    before = [stage.quick() for _ in range(3)]
    after = [stage.quick() for _ in range(3)]
    ends = await stage.results_of(*before, stage.crashing(), *after)
    quick = [stage.subject.quick_state] * 3
    assert [end.state for end in ends] == [*quick, "failed", *quick]
    assert (await stage.result_of(stage.quick())).state == stage.subject.quick_state


async def what_a_long_task_writes_is_told_while_it_runs(stage: Stage) -> None:
    await stage.result_of(stage.quick())
    work = stage.subject.talking(stage.folder)
    if work is None:
        return
    run = stage.run_of(work)
    stage.submit(run)
    texts = stage.recorder.texts
    await stage.until(lambda: b"".join(one.data for one in texts) == b"before\n")
    assert {(one.attempt, one.stream, one.offset) for one in texts[:1]} == {(run.attempt, 1, 0)}
    assert run.attempt not in stage.recorder.ends
    stage.driver.kill([run.attempt])
    await stage.end_of(run)


async def close_ends_everything(stage: Stage) -> None:
    head, waiting = stage.slow(), stage.quick()
    stage.submit(head)
    await stage.start_of(head)
    stage.submit(waiting, lane=OTHER_LANE)
    await stage.driver.close()
    assert stage.recorder.ends[head.attempt].state == "cancelled"


async def close_right_after_submit_ends_everything_too(stage: Stage) -> None:
    stage.submit(stage.slow(), stage.quick())
    await asyncio.sleep(0)
    stage.submit(stage.slow(), lane=OTHER_LANE)


async def a_closed_lane_can_be_opened_again(stage: Stage) -> None:
    for _ in range(3):
        assert (await stage.result_of(stage.quick())).state == stage.subject.quick_state
        stage.driver.close_lane(LANE)


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
