"""Deadlines fall due when they should, however often they move."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mycel.core.timers import Timers


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 100), st.integers(0, 5)),
        max_size=60,
    )
)
def test_each_deadline_is_told_once_and_in_time(
    story: list[tuple[str, int | None, int]],
) -> None:
    timers: Timers[str] = Timers()
    wanted: dict[str, float] = {}
    now = 0.0
    for key, when, passes in story:
        if when is None:
            timers.cancel(key)
            wanted.pop(key, None)
        else:
            timers.set(key, float(when))
            wanted[key] = float(when)
        now += passes
        earliest = min(wanted.values(), default=None)
        wake_at = timers.wake_at
        assert earliest is None or (wake_at is not None and wake_at <= earliest)
        due = timers.take_due(now)
        assert sorted(due) == sorted(key for key, at in wanted.items() if at <= now)
        for key in due:
            del wanted[key]
