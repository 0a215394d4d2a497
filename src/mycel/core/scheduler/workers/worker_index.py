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
from mycel.core.scheduler.trust.guard import Guard

from .exclusions import Exclusions
from .slot_books import SlotBooks

LOCAL_MAX: Final = 4096


class Roster:
    def __init__(
        self, state: State, books: SlotBooks, exclusions: Exclusions, guard: Guard
    ) -> None:
        self._state = state
        self._guard = guard
        self._books = books
        self._exclusions = exclusions

    def described(self, worker: Worker, now: float) -> None:
        """It has said what it can do, or somebody has said it for it."""
        pool = self._state.pool
        source = worker.facts.get("capabilities", ("", now))[0]
        local = worker.peer in self._state.local_workers
        member = worker.member = pool.put(
            worker.peer, worker.capabilities, linked=True, local=local, source=source, seen_at=now
        )
        if worker.peer in self._state.own_workers:
            pool.set_own(member)
        if "load" in worker.facts:
            self._books.described(worker)
        if worker.rtt_seconds is not None:
            pool.set_rtt(member, worker.rtt_seconds)
        self._guard.stands(worker)
        self.stands(worker)
        self.moved(worker)

    def is_local(self, peer: PeerId, same_node: bool, now: float) -> None:
        state = self._state
        if same_node:
            state.own_workers.add(peer)
        if len(state.local_workers) < LOCAL_MAX:
            state.local_workers.add(peer)
        worker = state.workers.get(peer)
        if worker is not None and worker.member is not None:
            self.described(worker, now)

    def stands(self, worker: Worker) -> None:
        """Its health, or whether it takes new work, may have changed."""
        if worker.member is not None:
            self._state.pool.set_available(worker.member, worker.may_be_booked)

    def reported(
        self, worker: Worker, room: Free, running: int, usage: Usage | None = None
    ) -> None:
        """`usage` is None if it is as it was."""
        worker.usage = usage or worker.usage
        worker.running_for_others = max(0, running - len(worker.attempts))
        self._books.set_room(worker, room)
        self.has_news(worker)

    def has_news(self, worker: Worker) -> None:
        """It may take what it could not take before."""
        self._exclusions.has_news(worker)
        self._state.has_room(worker)
        self.moved(worker)

    def moved(self, worker: Worker) -> None:
        """Tasks were sent to it or have ended, which it does not report by itself."""
        self._state.moved_workers[worker.peer] = worker

    def round_trip(self, worker: Worker, seconds: float) -> None:
        worker.rtt_seconds = seconds
        if worker.member is not None:
            self._state.pool.set_rtt(worker.member, seconds)

    def gone(self, worker: Worker) -> None:
        """Its place may be another's soon: nothing of it may stay behind."""
        self._exclusions.gone(worker)
        self._guard.gone(worker)
        self._books.gone(worker)
        member, worker.member = worker.member, None
        if member is None:
            return
        self._state.pool.remove(worker.peer)
