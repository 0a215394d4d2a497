"""Whether a failed attempt is followed by another, and when."""

from __future__ import annotations

from enum import StrEnum

from .settings import RetrySettings
from .work import Retry


class Cause(StrEnum):
    ERROR = "error"
    """The task's own: a non-zero exit or an exception."""
    TIMEOUT = "timeout"
    WORKER = "worker"
    """The worker died, or its driver failed."""


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
