"""What can be set of the machines. Durations are seconds; a comment says what each is for."""

from __future__ import annotations

import msgspec

from .matching import SelectionSettings


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    enable_retries: bool = True
    max_attempts: int = 3
    max_retries: int = 3
    backoff: str = "exponential"
    backoff_base: float = 2.0
    backoff_max: float = 60.0
    retry_on_timeout: bool = True
    retry_on_worker_failure: bool = True
    poison_attempts: int = 5
    """So many attempts in a row that took their worker or interpreter along, and a task is
    stopped, whatever retries it has left."""


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    failures_max: int = 3
    """So many attempts in a row that failed by its worker's own fault, and it is quarantined."""
    quarantine_seconds: float = 10.0
    """Then a task tries it; each time after that the pause is twice as long…"""
    quarantine_seconds_max: float = 600.0
    """…up to this."""
    newcomer_tasks: int = 8
    """What a newcomer has at once, and has to end well."""
    newcomer_seconds: float = 10.0
    """One that spoils nothing has twice as many after each of these."""
    doubt_seconds: float = 60.0
    """So long a newcomer is held back for being too quick."""


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    lease_seconds: float = 15.0
    """How long a registration lives after the worker's clock reading that renewed it."""
    health_check_interval: float = 30.0
    """A worker without tasks may be silent for so long before it misses a check."""
    health_check_timeout: float = 5.0
    """An assignment unacknowledged for so long is withdrawn; a dial is tried again."""
    max_consecutive_failures: int = 3
    """So many notices of silence, and a worker is dead."""
    max_concurrent_tasks: int | None = None
    """Assignments sent and unfinished; None is bounded by slots alone."""
    max_queued_tasks: int = 1_000_000
    max_batch_tasks: int = 10_000
    retry: RetrySettings = RetrySettings()
    selection: SelectionSettings = SelectionSettings()
    breaker: BreakerSettings = BreakerSettings()
    task_timeout: float | None = None
    """For tasks that name none of their own."""
    model_task_timeout: float = 300.0

    call_seconds: float = 2.0
    """Others are called in place of a worker that was dialled and has not come by then."""
    ask_again_seconds: float = 0.5
    """A worker that had no room for a shape is not sent such tasks again sooner, unless it has
    news…"""
    ask_again_seconds_max: float = 5.0
    """…and so much later where the reason was another."""
    acknowledge_seconds: float = 0.1
    """Acknowledgements of results are collected for so long: nobody waits for them."""
    careful_seconds: float = 10.0
    """After a worker was lost, its shapes' prefetch is one for so long."""
    retention_seconds: float = 7 * 86400.0
    """Finished jobs are kept so long…"""
    retention_tasks: int = 1_000_000
    """…and so many tasks of theirs at the most."""
    fetch_bytes: int = 4 << 20
    """A result that is too long for a message is fetched in pieces of this size."""
    value_bytes_max: int = 64 << 20
    """A longer result is an error of its task."""
    retention_bytes: int = 10_000_000_000
    """Results in files that finished jobs may have together."""
    health_save_seconds: float = 5.0
    """What is measured of workers is journalled so often: a crash forgets the rest."""
    away_seconds: float = 10.0
    """A worker without tasks that has lost its link, or does not answer, is forgotten."""
    linked_workers_max: int = 256
    """Above so many links, workers that are not used are hung up, and stay known."""
    known_workers_max: int = 100_000
    """Without a link."""
    known_seconds: float = 600.0
    """A worker that was hung up comes back after so long, to say that it is still there."""
    discovery_interval: float = 60.0
    """How often workers are sought for a shape that lacks them…"""
    seek_seconds_min: float = 1.0
    """…and how soon at first, if none is known at all; then ever more slowly."""
    announce_idle_seconds: float = 10.0
    """Work that comes after so long without any makes the scheduler announce itself."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    lease_seconds: float = 15.0
    tell_seconds: float = 0.02
    """Schedulers hear of changes of what is free no more often."""
    share_seconds: float = 1.0
    """They hear what others have booked no more often, unless they were refused for it."""
    idle_lane_seconds: float = 30.0
    """A lane without work stays warm for so long, if nothing else needs its room."""
    shapes_max: int = 256
    """So many shapes of a scheduler are known by number; the oldest without work go first."""
    confirm_seconds: float = 0.1
    """Assignments are confirmed so much later, unless they are through by then: a result says
    that they have arrived."""
    inline_bytes_max: int = 1 << 20
    """A longer result is announced, and fetched piece by piece."""
    spool_after_seconds: float = 1.0
    """An outcome unacknowledged for so long goes to disk."""
    prefetch_seconds: float = 0.005
    """So much work waits in each lane."""
    process_prefetch_seconds: float = 0.04
    """The same for processes. Each costs a millisecond whatever it does, so that 5 ms would be a
    few of them, and nearly each would pay for a report, a commit and an assignment of its own."""
    prefetch_overhead_seconds: float = 5e-6
    """What a task costs besides its own duration; bounds the prefetch of no-ops."""
    prefetch_max: int = 1024
    """Per lane."""
    long_seconds: float = 0.05
