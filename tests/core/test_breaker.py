"""Workers that spoil what they get are found out, and honest ones are left alone."""

from __future__ import annotations

from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.errors import WrongStep
from mycel.core.machine_settings import BreakerSettings
from mycel.core.scheduler.trust.breaker import (
    BREAKER,
    Breaker,
    BreakerState,
    BreakerStep,
    held_seconds_max,
)
from mycel.core.scheduler.trust.shape_ends import ENDS_MAX, WORKERS_MAX, ShapeEnds, percentile
from mycel.core.scheduler.trust.verdicts import Verdict, verdict_of

SETTINGS = BreakerSettings()
NEWCOMER = SETTINGS.newcomer_tasks
NEW, TRUSTED = BreakerState.NEW, BreakerState.TRUSTED
QUARANTINED, PROBING = BreakerState.QUARANTINED, BreakerState.PROBING


@pytest.mark.parametrize("state", BreakerState)
@pytest.mark.parametrize("step", BreakerStep)
def test_only_what_the_table_lists_can_happen(state: StrEnum, step: StrEnum) -> None:
    key = (BreakerState(state), BreakerStep(step))
    if key in BREAKER:
        assert BREAKER[key] is not state
    else:
        with pytest.raises(WrongStep):
            BREAKER[key]


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (("succeeded", "", False), Verdict.GOOD),
        (("failed", "exit_code", False), Verdict.TASK),
        (("failed", "exception", False), Verdict.TASK),
        (("failed", "crash", False), Verdict.TASK),
        (("failed", "limit", False), Verdict.TASK),
        (("timed_out", "timeout", False), Verdict.TASK),
        (("failed", "driver_fault", True), Verdict.WORKER),
        (("failed", "result_damaged", True), Verdict.WORKER),
        (("lost", "held_too_long", False), Verdict.WORKER),
        (("lost", "lost", False), Verdict.NEITHER),
        (("cancelled", "cancelled", False), Verdict.WORKER),
        (("failed", "model_upstream_429", True), Verdict.NEITHER),
        (("failed", "max_cost", False), Verdict.NEITHER),
        (("failed", "deadline", False), Verdict.NEITHER),
    ],
)
def test_an_end_has_an_author(outcome: tuple[str, str, bool], verdict: Verdict) -> None:
    state, code, driver_fault = outcome
    assert verdict_of(state, code, driver_fault=driver_fault) is verdict


class Trial:
    """A worker beside honest ones that take 50 ms."""

    def __init__(self) -> None:
        self.ends = ShapeEnds()
        self.breaker = Breaker("w", SETTINGS)
        self.now = 100.0

    def peers(self, count: int, seconds: float = 0.05, failed: bool = False) -> None:
        for number in range(count):
            self.ends.add(f"peer-{number % 2}", seconds, failed=failed)

    def end(self, verdict: Verdict, seconds: float = 0.05, count: int = 1) -> list[BreakerStep]:
        steps = []
        for _ in range(count):
            self.breaker.sent(self.now)
            if verdict in (Verdict.GOOD, Verdict.TASK):
                self.ends.add("w", seconds, failed=verdict is Verdict.TASK)
            step = self.breaker.ended(verdict, self.ends, self.now)
            if step is not None:
                steps.append(step)
        return steps

    def trust(self) -> None:
        self.peers(32)
        assert self.end(Verdict.GOOD, count=NEWCOMER) == [BreakerStep.PROVE]

    def room(self, out: int = 0) -> int:
        return self.breaker.room(out, self.ends, self.now)


def test_a_newcomer_gets_a_few_until_as_many_have_ended_well() -> None:
    trial = Trial()
    trial.peers(10)
    assert trial.room() == NEWCOMER
    assert trial.room(out=NEWCOMER) == 0
    trial.end(Verdict.GOOD, count=NEWCOMER - 1)
    assert trial.room(out=NEWCOMER) == 0
    assert trial.end(Verdict.GOOD) == [BreakerStep.PROVE]
    assert trial.room(out=1000) > 1000


def test_long_tasks_open_the_way_slowly() -> None:
    trial = Trial()
    trial.breaker.sent(trial.now)
    trial.now += SETTINGS.newcomer_seconds
    assert trial.room() == 2 * NEWCOMER
    trial.now += 2.0 * SETTINGS.newcomer_seconds
    assert trial.room() == 8 * NEWCOMER
    trial.breaker.fault("", trial.now)
    assert trial.room() == NEWCOMER


def test_alone_it_is_trusted_as_soon_as_nobody_can_be_compared_with() -> None:
    trial = Trial()
    assert not trial.end(Verdict.GOOD, count=NEWCOMER)
    assert trial.room() == 0, "the others may still bring something to compare"
    trial.now += 5.0
    assert trial.room() == NEWCOMER
    assert trial.end(Verdict.GOOD) == [BreakerStep.PROVE]


@pytest.mark.parametrize("verdict", [Verdict.GOOD, Verdict.TASK])
def test_one_that_ends_everything_at_once_gets_a_twentieth(verdict: Verdict) -> None:
    trial = Trial()
    given_to_it = 0
    for _ in range(300):
        if trial.room():
            trial.end(verdict, seconds=0.001)
            given_to_it += 1
        else:
            trial.peers(1)
    assert given_to_it <= 30
    assert trial.breaker.state in ((NEW,) if verdict is Verdict.GOOD else (QUARANTINED,))


def test_a_quick_one_is_believed_in_the_end() -> None:
    trial = Trial()
    trial.peers(32)
    trial.end(Verdict.GOOD, seconds=0.001, count=NEWCOMER)
    assert trial.breaker.state is NEW
    trial.now += SETTINGS.doubt_seconds
    assert trial.end(Verdict.GOOD, seconds=0.001) == [BreakerStep.PROVE]


def test_shapes_of_few_tasks_hold_nobody_back() -> None:
    trial = Trial()
    for _ in range(100):
        trial.ends = ShapeEnds()
        trial.end(Verdict.GOOD)
        assert trial.room() == NEWCOMER


def test_twice_as_quick_is_no_reason_for_doubt() -> None:
    trial = Trial()
    trial.peers(32)
    assert trial.end(Verdict.GOOD, 0.02, NEWCOMER) == [BreakerStep.PROVE]


def test_faults_in_a_row_trip_and_a_good_end_between_does_not() -> None:
    trial = Trial()
    trial.trust()
    for _ in range(10):
        assert not trial.end(Verdict.WORKER, count=2)
        assert not trial.end(Verdict.GOOD)
    assert trial.end(Verdict.WORKER, count=3) == [BreakerStep.TRIP]
    assert trial.breaker.state is QUARANTINED
    assert trial.room() == 0


def test_a_tasks_own_failures_count_for_the_task() -> None:
    trial = Trial()
    trial.trust()
    trial.peers(64, failed=True)
    assert not trial.end(Verdict.TASK, count=100)
    assert trial.breaker.state is TRUSTED


def test_failing_far_more_often_than_elsewhere_trips() -> None:
    trial = Trial()
    trial.trust()
    steps = trial.end(Verdict.TASK, count=ENDS_MAX)
    assert steps == [BreakerStep.TRIP]


def test_with_too_few_peers_nobody_is_compared() -> None:
    trial = Trial()
    trial.peers(19)
    assert BreakerStep.TRIP not in trial.end(Verdict.TASK, count=100)


def test_what_clients_and_owners_end_says_nothing() -> None:
    trial = Trial()
    trial.trust()
    assert not trial.end(Verdict.NEITHER, count=100)
    assert trial.breaker.failures == 0


def test_a_probe_lets_it_back_and_the_pause_doubles() -> None:
    trial = Trial()
    pauses = []
    for _ in range(10):
        trial.end(Verdict.WORKER, count=3 if trial.breaker.state is NEW else 1)
        assert trial.breaker.state is QUARANTINED
        pauses.append(trial.breaker.until - trial.now)
        trial.now = trial.breaker.until
        trial.breaker.try_it()
        assert (trial.room(0), trial.room(1)) == (1, 0)
    assert pauses == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0, 600.0, 600.0]
    assert trial.end(Verdict.GOOD) == [BreakerStep.PASS]
    assert trial.breaker.state is NEW
    trial.trust()
    trial.end(Verdict.WORKER, count=3)
    assert trial.breaker.until == trial.now + 10.0, "who was trusted again starts afresh"


def test_what_is_held_ten_times_too_long_is_given_up() -> None:
    trial = Trial()
    trial.peers(19)
    assert held_seconds_max("w", trial.ends) is None
    trial.peers(1)
    assert held_seconds_max("w", trial.ends) == 2.0, "never sooner, however quick the others"
    trial.peers(64, seconds=3.0)
    assert held_seconds_max("w", trial.ends) == 30.0
    assert held_seconds_max("peer-0", trial.ends) == 30.0
    steps = [trial.breaker.fault("held", trial.now) for _ in range(SETTINGS.failures_max)]
    assert steps == [None, None, BreakerStep.TRIP]


def test_nobody_displaces_what_others_did() -> None:
    ends = ShapeEnds()
    for _ in range(30):
        ends.add("slow", 1.0, failed=False)
    for _ in range(10_000):
        ends.add("quick", 0.001, failed=True)
    assert ends.elsewhere("quick") == [1.0] * 30
    assert ends.failures_elsewhere("slow") == (ENDS_MAX, ENDS_MAX)
    for number in range(10_000):
        ends.add(number, 1.0, failed=False)
    assert len(ends.elsewhere("nobody")) == WORKERS_MAX


@given(st.lists(st.floats(0.0, 1e6), min_size=1), st.floats(0.0, 1.0))
def test_a_percentile_is_one_of_them(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)


events = st.lists(
    st.tuples(st.sampled_from([*Verdict, "try", "held"]), st.floats(0.0, 20.0)), max_size=60
)


@given(events)
def test_no_history_breaks_it_and_quarantine_gives_nothing(
    history: list[tuple[Verdict | str, float]],
) -> None:
    trial = Trial()
    trial.peers(32)
    for what, seconds in history:
        trial.now += seconds
        if isinstance(what, Verdict):
            trial.end(what, seconds)
        elif what == "held":
            trial.breaker.fault("held", trial.now)
        elif trial.breaker.state is QUARANTINED and trial.now >= trial.breaker.until:
            trial.breaker.try_it()
        room = trial.room()
        assert room >= 0
        if trial.breaker.state is QUARANTINED:
            assert room == 0
        if trial.breaker.state is PROBING:
            assert room <= 1
