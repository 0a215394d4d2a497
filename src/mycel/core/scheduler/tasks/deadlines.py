"""Deadlines: what waits when one comes fails, piece by piece.

What is out runs on, since its result may be there any moment; but nothing is tried again.
"""

from __future__ import annotations

from typing import Final

from mycel.core.model.jobs import Block, Job, task_key
from mycel.core.scheduler.state import State

from .attempts import Attempts

CHUNK: Final = 500
"""So many tasks fail in one event."""
RECOVERY_SECONDS: Final = 1.0


class Deadlines:
    def __init__(self, state: State, attempts: Attempts) -> None:
        self._state = state
        self._attempts = attempts

    def watch(self, job: Job, now: float) -> None:
        """Also when the wall clock was set back or forth. Most groups have no deadline."""
        for group in job.groups:
            deadline_at = group.specification.deadline_at
            if deadline_at is not None and job.state is None:
                left = max(0.0, deadline_at - self._state.unix(now))
                self._state.timers.set(("deadline", (job.number, deadline_at)), now + left)

    def due(self, key: object, now: float) -> None:
        assert isinstance(key, tuple)
        job = self._state.jobs.get(key[0])
        if job is None or job.state is not None:
            return
        late = [block for block in job.blocks if block.group.specification.deadline_at == key[1]]
        if self._state.unix(now) < key[1]:
            self.watch(job, now)
        elif self._state.recovering and any(block.old for block in late):
            # After a restart what seems to wait may run: its workers are asked first.
            self._state.timers.set(("deadline", key), now + RECOVERY_SECONDS)
        elif self._fail_some(job, late, now):
            self._state.timers.set(("deadline", key), now)

    def _fail_some(self, job: Job, late: list[Block], now: float) -> bool:
        """Whether there may be more of them."""
        left = CHUNK
        for block in late:
            if block.is_over:
                continue
            for index in range(block.first, block.first + block.count):
                key = task_key(job.number, index)
                if job.is_ended(block, index) or key in self._state.current:
                    continue
                self._attempts.miss_deadline(key, block, index, now)
                left -= 1
                if not left:
                    return True
        return False
