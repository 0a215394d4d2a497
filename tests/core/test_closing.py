"""A worker that takes no new work: what it refuses, what goes on, and what it hands back."""

from __future__ import annotations

from mycel.core import events, messages
from mycel.core.effects import Emptied, KillRuns, WithdrawRuns
from mycel.core.identifiers import AttemptId, RequestId
from mycel.core.messages import Closed, LoadChange, Register, Returned
from mycel.core.messages.refusals import CLOSED
from mycel.core.rights import Rights

from .worker_stage import PEER, Stage, told


def test_it_refuses_and_says_why_until_the_last_cause_is_gone() -> None:
    stage = Stage()
    stage.introduce()
    stage.shut()
    stage.do(events.Shut("hours", "it is day", None))
    assert stage.refused(stage.send()) == (CLOSED, "its owner is here")
    stage.now = 1.0
    stage.do(events.Reopen("owner"))
    assert stage.refused(stage.send()) == (CLOSED, "it is day")
    stage.now = 2.0
    [change] = told(stage.do(events.Reopen("hours")))
    assert isinstance(change, LoadChange)
    assert (change.accepting, change.closed_for) == (True, "")
    assert stage.assign()


def test_schedulers_hear_of_it_at_once_and_with_each_new_link() -> None:
    stage = Stage()
    stage.now = 1.0
    [change] = told(stage.shut())
    assert isinstance(change, LoadChange)
    assert (change.accepting, change.closed_for) == (False, "its owner is here")
    stage.do(events.LinkDown(PEER, "lost"))
    [register] = told(stage.do(events.LinkUp(PEER)))
    assert isinstance(register, Register)
    assert register.closed_for == "its owner is here"


def test_what_runs_goes_on_and_the_rest_goes_back() -> None:
    stage = Stage()
    stage.introduce()
    [first, second] = stage.assign(2)
    stage.start(first)
    effects = stage.shut()
    assert [one.attempts for one in effects if isinstance(one, WithdrawRuns)] == [[second]]
    assert not [one for one in effects if isinstance(one, KillRuns)]
    back = told(stage.do(events.RunsWithdrawn([second])))
    assert [one.reason for one in back if isinstance(one, Returned)] == [""]
    stage.now = 1000.0
    results = told(stage.finish(first, "succeeded"))
    assert next(type(one).__name__ for one in results) == "Results"


def test_after_the_grace_what_runs_is_stopped_and_handed_back() -> None:
    stage = Stage()
    stage.introduce()
    [run] = stage.assign()
    stage.start(run)
    stage.shut(after=5.0)
    stage.now = 4.9
    assert not [one for one in stage.do(events.Tick()) if isinstance(one, KillRuns)]
    stage.now = 5.0
    effects = stage.do(events.Tick())
    assert [one.attempts for one in effects if isinstance(one, KillRuns)] == [[run]]
    [back] = [one for one in told(stage.finish(run, "cancelled")) if isinstance(one, Returned)]
    assert (back.attempts, back.reason) == ([AttemptId(1)], "its owner is here")


def test_what_has_ended_before_it_could_be_stopped_is_a_result() -> None:
    stage = Stage()
    stage.introduce()
    [run] = stage.assign()
    stage.start(run)
    stage.shut(after=0.0)
    stage.do(events.Tick())
    assert not [one for one in told(stage.finish(run, "succeeded")) if isinstance(one, Returned)]


def test_who_opens_again_before_the_grace_stops_nothing() -> None:
    stage = Stage()
    stage.introduce()
    [run] = stage.assign()
    stage.start(run)
    stage.shut(after=5.0)
    stage.do(events.Reopen("owner"))
    stage.now = 14.0
    assert not [one for one in stage.do(events.Tick()) if isinstance(one, KillRuns)]


def test_a_worker_that_is_to_stop_says_when_it_is_empty() -> None:
    stage = Stage()
    stage.introduce()
    [run] = stage.assign()
    stage.start(run)
    effects = stage.do(events.Shut("stop", "it is about to stop", 30.0))
    assert Emptied() not in effects
    assert Emptied() in stage.finish(run, "succeeded")


def test_an_idle_worker_is_empty_at_once() -> None:
    assert Emptied() in Stage().do(events.Shut("stop", "it is about to stop", 30.0))


def close(on: bool = True) -> messages.Close:
    return messages.Close(RequestId(7), on, "ada", None, b"token")


def test_who_may_admin_drains_and_resumes_it() -> None:
    stage = Stage(Rights(actions=frozenset({"admin"}), is_bound=True))
    answers = [one for one in stage.hear(close()) if isinstance(one, Closed)]
    assert answers == [Closed(RequestId(7), "", False, "it was drained by ada")]
    answers = [one for one in stage.hear(close(on=False)) if isinstance(one, Closed)]
    assert answers == [Closed(RequestId(7), "", True, "")]


def test_who_may_not_changes_nothing() -> None:
    for rights in (
        Rights(actions=frozenset({"submit"}), is_bound=True),
        Rights(actions=frozenset({"admin"}), is_bound=False),
    ):
        stage = Stage(rights)
        [answer] = stage.hear(close())
        assert isinstance(answer, Closed)
        assert answer.objection
        assert answer.accepting
