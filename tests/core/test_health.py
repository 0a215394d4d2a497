"""What is measured of workers, and that it fades."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.identifiers import PeerId
from mycel.core.scheduler.workers.reliability import WINDOW, WorkerHealth, restored_health


def test_nothing_is_known_of_a_new_worker() -> None:
    health = WorkerHealth()
    assert health.success_rate is None
    assert health.avg_completion_seconds is None
    assert health.consecutive_failures == 0


def test_rates_and_means_follow_what_happened() -> None:
    health = WorkerHealth()
    health.success(1.0)
    health.success(3.0)
    health.failure(at_fault=False)
    assert health.success_rate == pytest.approx(2 / 3)
    assert health.avg_completion_seconds == pytest.approx(2.0)


def test_only_the_workers_own_failures_count_in_a_row() -> None:
    health = WorkerHealth()
    health.failure(at_fault=False)
    assert health.consecutive_failures == 0
    health.failure(at_fault=True)
    health.failure(at_fault=True)
    assert health.consecutive_failures == 2
    health.success(1.0)
    assert health.consecutive_failures == 0


def test_a_worker_that_has_become_bad_is_soon_known_as_bad() -> None:
    health = WorkerHealth()
    for _ in range(50 * WINDOW):
        health.success(1.0)
    for _ in range(WINDOW):
        health.failure(at_fault=True)
    assert health.success_rate is not None
    assert health.success_rate < 0.4


@given(st.lists(st.one_of(st.floats(0, 1e6), st.booleans()), max_size=50))
def test_it_survives_the_journal(ends: list[float | bool]) -> None:
    health = WorkerHealth()
    for end in ends:
        if isinstance(end, bool):
            health.failure(at_fault=end)
        else:
            health.success(end)
    health.last_seen_at = 5.0
    again = restored_health(health.measured(PeerId("w")))
    assert again.measured(PeerId("w")) == health.measured(PeerId("w"))
