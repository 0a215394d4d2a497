"""Workers' registrations: each is the scheduler's lease of a whole worker.

It is journalled once, before its first use, and renewed as a whole by the worker's heartbeats,
whose clock reading each renewal echoes. A registration that is not renewed ends at the worker
before it ends here.
"""

from __future__ import annotations

from typing import Final

from mycel.core.effects import SendAhead
from mycel.core.identifiers import LeaseId, PeerId
from mycel.core.journal import LeaseEnded, LeaseGranted
from mycel.core.messages import Renew
from mycel.core.scheduler.records import Registration, Worker
from mycel.core.scheduler.state import State
from mycel.core.states import LeaseState, LeaseStep

from .worker_index import Roster

TIMER: Final = "lease"


class Registrations:
    def __init__(self, state: State, roster: Roster) -> None:
        self._state = state
        self._roster = roster

    def restore(self, worker: Worker, lease: LeaseId, now: float) -> None:
        """As the journal has it: its worker may run what looks as if it waited."""
        ends_at = now + self._state.settings.lease_seconds
        worker.registration = Registration(lease, ends_at, LeaseState.RESTORED)
        self._state.recovering.add(worker.peer)
        self._watch(worker, ends_at)

    def begin(self, worker: Worker, lease: LeaseId, arrived_at: float) -> None:
        """The worker has registered: under the same epoch as before, or under a later one."""
        state, before = self._state, worker.registration
        ends_at = arrived_at + state.settings.lease_seconds
        if before is not None and before.id == lease:
            before.step(LeaseStep.CONFIRM)
            before.ends_at = max(before.ends_at, ends_at)
            ends_at = before.ends_at
        else:
            if before is not None:
                self.end(worker, LeaseStep.REPLACE, "its worker has registered anew")
            worker.registration = Registration(lease, ends_at)
            state.record(LeaseGranted(worker.peer, lease, worker.addresses))
        self._watch(worker, ends_at)
        self.has_reported(worker.peer)

    def renew(self, worker: Worker, peer_clock: float, arrived_at: float) -> None:
        """A worker that has no registration here is told so, and registers anew."""
        registration = worker.registration
        lease = LeaseId(0)
        if registration is not None and registration.is_held:
            lease = registration.id
            registration.step(LeaseStep.RENEW)
            ends_at = arrived_at + self._state.settings.lease_seconds
            registration.ends_at = max(registration.ends_at, ends_at)
            self._watch(worker, registration.ends_at)
        self._state.emit(SendAhead(worker.peer, Renew(peer_clock, lease)))

    def end(self, worker: Worker, step: LeaseStep, reason: str) -> None:
        """What is out there is the caller's business."""
        registration = worker.registration
        if registration is None:
            return
        registration.step(step)
        worker.registration = None
        self._state.timers.cancel((TIMER, worker.peer))
        self._roster.stands(worker)
        self.has_reported(worker.peer)
        self._state.record(LeaseEnded(worker.peer, registration.id, reason))

    def has_reported(self, peer: PeerId) -> None:
        """Once all have, what was there before this boot may be sent."""
        state = self._state
        if peer in state.recovering:
            state.recovering.discard(peer)
            if not state.recovering:
                for queue in state.queues.values():
                    state.touch(queue)

    def _watch(self, worker: Worker, ends_at: float) -> None:
        self._state.timers.set((TIMER, worker.peer), ends_at)
