"""Nothing waits behind a task that takes long: other workers may have room for it."""

from __future__ import annotations

import pytest

from mycel.core import events
from mycel.core.identifiers import LaneId
from mycel.core.messages import Refused, Returned, Started, Window
from mycel.core.messages.refusals import NO_ROOM

from .worker_stage import Stage, told


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.introduce()
    return stage


def windows(effects: list[object]) -> list[tuple[Window, ...]]:
    return [one.windows for one in effects if isinstance(one, Started)]


def test_a_long_task_is_told_with_the_room_that_is_left_beside_it(stage: Stage) -> None:
    [run] = stage.assign()
    [[window]] = windows(told(stage.start(run)))
    assert (window.shape, window.long) == (1, 1)


def test_there_is_no_room_behind_it_however_quick_the_others_were(stage: Stage) -> None:
    [quick] = stage.assign()
    stage.finish(quick, "succeeded")
    [run] = stage.assign(first=2)
    [[window]] = windows(told(stage.start(run)))
    assert window.long == 1


def test_what_was_on_its_way_meanwhile_goes_back_at_once(stage: Stage) -> None:
    [run] = stage.assign()
    stage.start(run)
    [back] = told(stage.send(first=2))
    assert isinstance(back, Refused)
    assert (back.attempts, back.code) == ([2], NO_ROOM)
    assert [(one.shape, one.long) for one in back.windows] == [(1, 1)]


def test_what_waits_for_a_lane_goes_back_when_the_last_one_is_taken_for_long(stage: Stage) -> None:
    runs = stage.assign(3)
    assert len(runs) == 2, "one in the lane, one behind it; the third waits for a place"
    back = [one for one in told(stage.start(runs[0])) if isinstance(one, Returned)]
    assert [len(one.attempts) for one in back] == [1]
    [returned] = told(stage.do(events.RunsReturned(LaneId(1), [runs[1]])))
    assert isinstance(returned, Returned)
    assert len(returned.attempts) == 1
