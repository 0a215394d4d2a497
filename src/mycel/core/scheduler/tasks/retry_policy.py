"""Whether a failed attempt is followed by another, and when."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from mycel.core.machine_settings import RetrySettings
from mycel.core.model.work import Retry


class Cause(StrEnum):
    ERROR = "error"
    """The task's own: a non-zero exit or an exception."""
    TIMEOUT = "timeout"
    WORKER = "worker"
    """The worker died, or its driver failed."""
    CRASH = "crash"
    """The task's own, and its interpreter died of it."""


FATAL: Final = frozenset({Cause.WORKER.value, Cause.CRASH.value})
"""What took the worker or the interpreter along."""


def attempts_allowed(settings: RetrySettings, job: Retry) -> int:
    if not settings.enable_retries:
        return 1
    allowed = min(settings.max_attempts, 1 + settings.max_retries)
    if job.max_attempts is not None:
        allowed = min(allowed, job.max_attempts)
    return max(allowed, 1)


def is_retried(settings: RetrySettings, job: Retry, cause: Cause, counted: int) -> bool:
    """`counted`: the attempts that have ended and count, this one included."""
    if counted >= attempts_allowed(settings, job):
        return False
    if cause is Cause.TIMEOUT:
        return settings.retry_on_timeout
    if cause is Cause.WORKER:
        return settings.retry_on_worker_failure
    return job.on_error


def is_poison(settings: RetrySettings, causes: Sequence[str]) -> bool:
    """`causes`: of the ends that count, this one last. So many fatal ones in a row are no
    coincidence: the task is stopped before it takes the next worker along."""
    limit = settings.poison_attempts
    return len(causes) >= limit and all(cause in FATAL for cause in causes[-limit:])


def delay_seconds(settings: RetrySettings, retry: int, jitter: float) -> float:
    """The pause before retry 1, 2, …; `jitter` in [-1, 1] moves it by up to a fifth."""
    base = settings.backoff_base
    if settings.backoff == "exponential":
        delay = base * 2.0 ** min(retry - 1, 60)
    elif settings.backoff == "linear":
        delay = base * retry
    else:
        delay = base
    return min(settings.backoff_max, delay) * (1.0 + 0.2 * jitter)
