"""Nothing waits behind a task that takes long: other workers may have room for it."""

from __future__ import annotations

from mycel.core import events
from mycel.core.identifiers import LaneId
from mycel.core.messages import Returned, Started

from .worker_stage import Stage, told


def test_a_long_task_is_told_with_the_room_that_is_left_beside_it() -> None:
    stage = Stage()
    lease = stage.lease()
    [run] = stage.assign(lease)
    [started] = [one for one in told(stage.start(run)) if isinstance(one, Started)]
    assert [(one.lease, one.size) for one in started.windows] == [(lease, 1)]


def test_there_is_no_room_behind_it_however_quick_the_others_were() -> None:
    stage = Stage()
    lease = stage.lease()
    [quick] = stage.assign(lease)
    stage.finish(quick, "succeeded")
    [run] = [run.attempt for one in stage.send(lease, first=2) for run in getattr(one, "runs", [])]
    [started] = [one for one in told(stage.start(run)) if isinstance(one, Started)]
    assert [one.size for one in started.windows] == [1]


def test_what_was_on_its_way_meanwhile_goes_back_at_once() -> None:
    stage = Stage()
    lease = stage.lease()
    [run] = stage.assign(lease)
    stage.start(run)
    [back] = told(stage.send(lease, first=2))
    assert isinstance(back, Returned)
    assert [(one.lease, one.size) for one in back.windows] == [(lease, 1)]


def test_what_waits_for_a_lane_goes_back_when_the_last_one_is_taken_for_long() -> None:
    stage = Stage()
    lease = stage.lease()
    runs = stage.assign(lease, 3)
    assert len(runs) == 2, "one in the lane, one behind it; the third waits for a place"
    back = [one for one in told(stage.start(runs[0])) if isinstance(one, Returned)]
    assert [len(one.attempts) for one in back] == [1]
    [returned] = told(stage.do(events.RunsReturned(LaneId(1), [runs[1]])))
    assert isinstance(returned, Returned)
    assert len(returned.attempts) == 1
