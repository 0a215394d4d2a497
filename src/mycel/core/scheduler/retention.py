"""Finished jobs are forgotten, by age and by number, the oldest first."""

from __future__ import annotations

from typing import Final

from mycel.core.effects import JobsForgotten
from mycel.core.journal import JobsPruned

from .state import State

PRUNE_SECONDS: Final = 600.0
"""Looked at so often, besides at the end of each job."""


class Retention:
    def __init__(self, state: State) -> None:
        self._state = state

    def prune(self, _: object, now: float) -> None:
        """At most one job an event, because one may have a million tasks."""
        state = self._state
        state.timers.set(("prune", None), now + PRUNE_SECONDS)
        if not state.ended_jobs:
            return
        oldest = state.ended_jobs[0]
        age = state.unix(now) - (oldest.ended_at or 0.0)
        limits = state.settings
        if (
            age <= limits.retention_seconds
            and state.ended_tasks <= limits.retention_tasks
            and state.ended_bytes <= limits.retention_bytes
        ):
            return
        state.ended_jobs.popleft()
        state.ended_tasks -= oldest.count
        state.ended_bytes -= oldest.file_bytes
        del state.jobs[oldest.number], state.job_ids[oldest.id]
        if state.idempotency_keys.get(oldest.idempotency_key) is oldest:
            del state.idempotency_keys[oldest.idempotency_key]
        state.record(JobsPruned((oldest.number,)))
        state.emit(JobsForgotten([oldest.id]))
        state.timers.set(("prune", None), now)
