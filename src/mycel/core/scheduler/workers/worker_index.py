"""Keeps the pool in step with what is known of each worker.

The pool is what selection looks at; the records of the workers are what everything else looks
at. Whoever changes a record tells the roster.
"""

from __future__ import annotations

from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.model.resources import Free, Usage
from mycel.core.scheduler.records import Worker
from mycel.core.scheduler.state import State

LOCAL_MAX: Final = 4096


class Roster:
    def __init__(self, state: State) -> None:
        self._state = state

    def described(self, worker: Worker, now: float) -> None:
        """It has said what it can do, or somebody has said it for it."""
        pool = self._state.pool
        source = worker.facts.get("capabilities", ("", now))[0]
        local = worker.peer in self._state.local_workers
        member = worker.member = pool.put(
            worker.peer, worker.capabilities, linked=True, local=local, source=source, seen_at=now
        )
        pool.report(member, worker.free, worker.running, worker.usage)
        if worker.rtt_seconds is not None:
            pool.set_rtt(member, worker.rtt_seconds)
        self.stands(worker)
        self.moved(worker)

    def is_local(self, peer: PeerId, now: float) -> None:
        state = self._state
        if len(state.local_workers) < LOCAL_MAX:
            state.local_workers.add(peer)
        worker = state.workers.get(peer)
        if worker is not None and worker.member is not None:
            self.described(worker, now)

    def stands(self, worker: Worker) -> None:
        """Its health, or whether it takes new work, may have changed."""
        if worker.member is not None:
            self._state.pool.set_available(worker.member, worker.is_healthy and worker.accepting)

    def reported(
        self, worker: Worker, free: Free, running: int, usage: Usage | None = None
    ) -> bool:
        """Whether there is more room than before. `usage` is None if it is as it was."""
        worker.usage = usage or worker.usage
        gained = _gains(worker.free, free)
        worker.free = free
        worker.running_for_others = max(0, running - len(worker.attempts))
        if worker.member is not None:
            self._state.pool.report(worker.member, free, worker.running, worker.usage)
        return gained

    def moved(self, worker: Worker) -> None:
        """Tasks were sent to it or have ended, which it does not report by itself."""
        self._state.moved_workers[worker.peer] = worker

    def round_trip(self, worker: Worker, seconds: float) -> None:
        worker.rtt_seconds = seconds
        if worker.member is not None:
            self._state.pool.set_rtt(worker.member, seconds)

    def gone(self, worker: Worker) -> None:
        """Its place may be another's soon: nothing of it may stay behind."""
        member, worker.member = worker.member, None
        if member is None:
            return
        for shape in worker.refused:
            queue = self._state.queues.get(shape)
            if queue is not None:
                queue.refused &= ~(1 << member.slot)
        worker.refused.clear()
        worker.shunned.clear()
        assert not worker.asked, "a worker is gone and still asked"
        self._state.pool.remove(worker.peer)


def _gains(before: Free, after: Free) -> bool:
    return (
        after.cpu_millis > before.cpu_millis
        or after.memory > before.memory
        or after.disk > before.disk
        or len(after.gpu_millis) != len(before.gpu_millis)
        or any(new > old for old, new in zip(before.gpu_millis, after.gpu_millis, strict=True))
        or after.custom != before.custom
    )
