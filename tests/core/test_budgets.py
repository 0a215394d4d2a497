"""A task costs no more than it may."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mycel.core.identifiers import AttemptId
from mycel.core.model.work import Finished, Work
from mycel.core.worker.budgets import charged, ended_in_time, limited

LONG = Work("process", command=("sleep", "100"))


def finished(
    state: str = "succeeded", seconds: float = 1.0, driver_fault: bool = False
) -> Finished:
    return Finished(
        AttemptId(1),
        state,  # type: ignore[arg-type]
        driver_fault=driver_fault,
        started_at=10.0,
        ended_at=10.0 + seconds,
    )


def test_the_time_out_is_what_the_budget_pays_for() -> None:
    work = limited(LONG, 3600.0, 2.5)
    assert work is not None
    assert work.timeout_seconds == 2.5


def test_a_shorter_time_out_of_its_own_stays() -> None:
    own = Work("process", command=("sleep", "100"), timeout_seconds=2.0)
    assert limited(own, 3600.0, 2.5) is None
    assert limited(own, 3600.0, 1.5) is not None


def test_without_a_price_by_the_hour_or_a_budget_nothing_is_limited() -> None:
    assert limited(LONG, 0.0, 0.0) is None
    assert limited(LONG, 3600.0, None) is None


def test_nothing_left_is_no_time_at_all_and_not_for_ever() -> None:
    work = limited(LONG, 3600.0, 0.0)
    assert work is not None
    assert work.timeout_seconds is not None
    assert 0.0 < work.timeout_seconds <= 0.001


def test_it_ends_as_too_dear_and_not_as_late() -> None:
    ended = ended_in_time(finished("timed_out"), 0.5)
    assert (ended.state, ended.code) == ("failed", "max_cost")
    assert ended_in_time(finished("failed"), 0.5) == finished("failed")


prices = st.floats(0.0, 1e6)


@given(prices, prices, prices, st.floats(0.0, 1e5), st.booleans())
def test_nobody_is_charged_beyond_the_budget(
    floor: float, rate: float, budget: float, seconds: float, driver_fault: bool
) -> None:
    bare = finished(seconds=seconds, driver_fault=driver_fault)
    cost = charged(bare, floor, rate, budget)
    assert 0.0 <= cost <= budget
    assert not (driver_fault and cost)
    assert cost <= charged(bare, floor, rate, None)
