"""When a worker takes work: how it is written, and what it means."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.events import Event, Reopen, Shut
from mycel.core.model import hours
from mycel.roles.worker.opening_hours import LOOK_SECONDS, Attending

MONDAY, FRIDAY, SATURDAY, SUNDAY = (day * hours.DAY_MINUTES for day in (0, 4, 5, 6))
NOON = 12 * 60


def within(text: str, minute: int) -> bool:
    return hours.is_within(hours.parse(text), minute)


def test_a_span_of_the_day() -> None:
    assert not within("09:00-17:00", MONDAY + 9 * 60 - 1)
    assert within("09:00-17:00", MONDAY + 9 * 60)
    assert not within("09:00-17:00", SUNDAY + 17 * 60)


def test_a_span_across_midnight() -> None:
    for day in (MONDAY, FRIDAY, SUNDAY):
        assert within("22:00-07:00", day + 23 * 60)
        assert within("22:00-07:00", day + 6 * 60)
        assert not within("22:00-07:00", day + NOON)


def test_a_night_belongs_to_the_day_on_which_it_begins() -> None:
    assert within("fri 22:00-07:00", FRIDAY + 23 * 60)
    assert within("fri 22:00-07:00", SATURDAY + 6 * 60)
    assert not within("fri 22:00-07:00", FRIDAY + 6 * 60)
    assert within("sun 22:00-07:00", MONDAY + 6 * 60)


def test_days_alone_and_spans_of_days() -> None:
    assert within("sat,sun", SUNDAY + NOON)
    assert not within("sat,sun", FRIDAY + NOON)
    assert within("fri-mon 00:00-24:00", SUNDAY)
    assert not within("fri-mon 00:00-24:00", MONDAY + hours.DAY_MINUTES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "25:00-26:00",
        "9-17",
        "09:00",
        "09:00-09:00",
        "someday 09:00-10:00",
        "mon tue",
        "09:60-10:00",
        "mon 09:00-10:00 tue",
    ],
)
def test_what_says_no_times_is_refused(text: str) -> None:
    with pytest.raises(hours.BadHours):
        hours.parse(text)


clock_times = st.integers(0, hours.DAY_MINUTES - 1)


@given(clock_times, clock_times, st.integers(0, hours.WEEK_MINUTES - 1))
def test_a_span_and_its_opposite_share_the_day(begin: int, end: int, minute: int) -> None:
    if begin != end:
        one = f"{begin // 60:02}:{begin % 60:02}"
        other = f"{end // 60:02}:{end % 60:02}"
        assert within(f"{one}-{other}", minute) != within(f"{other}-{one}", minute)


class Clock:
    def __init__(self) -> None:
        self.time = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time

    def unix(self) -> float:
        return self.time

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_at(self.time, callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        self.due.append((when, callback))

    def go_on(self) -> None:
        self.time, callback = self.due.pop(0)
        callback()


def test_a_worker_is_shut_outside_its_hours_and_opened_within_them() -> None:
    clock, told = Clock(), list[Event]()
    minute = MONDAY + NOON
    attending = Attending(clock, told.append, ["22:00-07:00"], lambda: minute)
    attending.start()
    assert told == [Shut("hours", "it takes work at 22:00-07:00 only")]
    clock.go_on()
    assert (clock.time, len(told)) == (LOOK_SECONDS, 1)
    minute = MONDAY + 22 * 60
    clock.go_on()
    assert told[1:] == [Reopen("hours")]
    attending.stop()
    clock.go_on()
    assert not clock.due


def test_who_names_no_hours_is_never_looked_at() -> None:
    clock = Clock()
    Attending(clock, lambda event: None, []).start()
    assert not clock.due
