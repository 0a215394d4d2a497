"""How often and when a task is tried again."""

from __future__ import annotations

import pytest

from mycel.core.machine_settings import RetrySettings
from mycel.core.model.work import Retry
from mycel.core.scheduler.tasks.retry_policy import (
    Cause,
    attempts_allowed,
    delay_seconds,
    is_poison,
    is_retried,
)


@pytest.mark.parametrize(
    ("settings", "job", "allowed"),
    [
        (RetrySettings(), Retry(), 3),
        (RetrySettings(enable_retries=False), Retry(), 1),
        (RetrySettings(max_attempts=9, max_retries=3), Retry(), 4),
        (RetrySettings(), Retry(max_attempts=2), 2),
        (RetrySettings(), Retry(max_attempts=99), 3),
    ],
)
def test_a_task_may_lower_the_limits_not_raise_them(
    settings: RetrySettings, job: Retry, allowed: int
) -> None:
    assert attempts_allowed(settings, job) == allowed


def test_an_error_of_the_task_is_final_unless_it_says_otherwise() -> None:
    assert not is_retried(RetrySettings(), Retry(), Cause.ERROR, 1)
    assert is_retried(RetrySettings(), Retry(on_error=True), Cause.ERROR, 1)


def test_causes_are_gated_by_their_settings() -> None:
    assert is_retried(RetrySettings(), Retry(), Cause.TIMEOUT, 1)
    assert not is_retried(RetrySettings(retry_on_timeout=False), Retry(), Cause.TIMEOUT, 1)
    assert is_retried(RetrySettings(), Retry(), Cause.WORKER, 2)
    assert not is_retried(RetrySettings(), Retry(), Cause.WORKER, 3)
    assert not is_retried(RetrySettings(retry_on_worker_failure=False), Retry(), Cause.WORKER, 1)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [("exponential", [2, 4, 8, 16, 32, 60]), ("linear", [2, 4, 6]), ("constant", [2, 2])],
)
def test_the_pause_grows_as_configured(backoff: str, delays: list[float]) -> None:
    settings = RetrySettings(backoff=backoff)
    found = [delay_seconds(settings, retry, 0.0) for retry in range(1, len(delays) + 1)]
    assert found == delays
    assert delay_seconds(settings, 1, 1.0) == pytest.approx(2.4)
    assert delay_seconds(settings, 1, -1.0) == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("causes", "poison"),
    [
        (["worker", "worker"], False),
        (["worker", "worker", "worker"], True),
        (["worker", "crash", "worker"], True),
        (["crash", "worker", "timeout", "worker"], False),
        (["timeout", "worker", "crash", "crash"], True),
        (["worker", "worker", "error"], False),
    ],
)
def test_so_many_fatal_ends_in_a_row_make_a_task_poison(causes: list[str], poison: bool) -> None:
    assert is_poison(RetrySettings(poison_attempts=3, max_attempts=99), causes) is poison


def test_a_crash_is_the_tasks_own() -> None:
    assert not is_retried(RetrySettings(), Retry(), Cause.CRASH, 1)
    assert is_retried(RetrySettings(), Retry(on_error=True), Cause.CRASH, 1)
