"""Which models jobs keep up, or are about to."""

from __future__ import annotations

from mycel.core.model.jobs import Job
from mycel.core.model.work import SERVICE
from mycel.core.scheduler.state import State


class Services:
    """Looks at each job once, when somebody asks after it has come."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._seen = 0
        """The highest number of a job that was looked at."""
        self._jobs: dict[str, list[Job]] = {}

    def keeps_up(self, model: str) -> bool:
        self._look_at_new()
        found = self._jobs.get(model)
        if found is None:
            return False
        found[:] = [job for job in found if job.state is None]
        if not found:
            del self._jobs[model]
        return bool(found)

    def _look_at_new(self) -> None:
        seen = self._seen
        for number, job in reversed(self._state.jobs.items()):
            if number <= seen:
                return
            self._seen = max(self._seen, number)
            if job.state is not None:
                continue
            for group in job.groups:
                work = group.specification.work
                if work.driver == SERVICE:
                    self._jobs.setdefault(work.model, []).append(job)
