"""The workers that rank first for a task, with what each term of their score contributes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.matching.forecast import RunningTask, eta_seconds, seconds_left
from mycel.core.matching.rank_terms import Member
from mycel.core.matching.score import RERANKED
from mycel.core.model.jobs import Block
from mycel.core.model.work import Shape, reserved
from mycel.core.scheduler.records import Attempt, Worker
from mycel.core.scheduler.state import State
from mycel.core.views import RankedWorker

RANKED_SHOWN: Final = 5


class Ranking:
    def __init__(self, state: State) -> None:
        self._state = state

    def first(self, block: Block, index: int, now: float) -> list[RankedWorker]:
        """Of those that may be given such a task, with room or without; the best first."""
        state, shape = self._state, block.group.shape
        pool = state.pool
        files = block.files_of(index)
        usual = state.usual.get(shape)
        expected = None if usual is None else usual.seconds
        among = pool.candidates(shape) or pool.eligible(shape)
        first = islice(pool.ranked(shape, lambda: 0.0, among=among), RERANKED) if among else ()
        ranked = []
        for member, _ in first:
            worker = state.workers.get(PeerId(member.key))
            eta = self.eta(member, worker, shape, now)
            terms = pool.terms(member, shape, files, expected, eta or 0.0)
            name = self._name(member, worker)
            ranked.append(
                RankedWorker(PeerId(member.key), name, eta, terms.total, dict(terms._asdict()))
            )
        ranked.sort(key=lambda one: (one.eta_seconds is None, one.seconds))
        return ranked[:RANKED_SHOWN]

    def eta(self, member: Member, worker: Worker | None, shape: Shape, now: float) -> float | None:
        """When it has room for such a task; 0 is now, None if nobody can tell."""
        running = () if worker is None else self._running(worker, now)
        return eta_seconds(reserved(shape), member.capabilities, member.expected, running)

    def _running(self, worker: Worker, now: float) -> Iterator[RunningTask]:
        """What holds its slots: of each shape as many attempts as it has booked, the first."""
        seen: dict[Shape, int] = {}
        for attempt in worker.attempts.values():
            shape = attempt.slots.shape
            count = seen[shape] = seen.get(shape, 0) + 1
            if count <= len(attempt.slots.bookings):
                left = self._left(attempt, now)
                if left is not None:
                    yield RunningTask(reserved(shape), left)

    @staticmethod
    def _left(attempt: Attempt, now: float) -> float | None:
        began = attempt.sent_at if attempt.started_at is None else attempt.started_at
        limit = attempt.block.group.specification.work.timeout_seconds
        return seconds_left(attempt.slots.queue.usual.seconds, limit, max(0.0, now - began))

    def _name(self, member: Member, worker: Worker | None) -> str:
        known = worker or self._state.known.get(PeerId(member.key))
        return "" if known is None else known.name
