"""The breakers of all workers, and who is withheld from selection because of them.

    quarantined   nobody of these is given anything, unless no other worker could run it at all
    held back     newcomers with as much as they get, and those that a task is trying just now

Both are masks of places in the pool. Almost every worker is trusted, and costs nothing here.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.matching.worker_sets import without
from mycel.core.model.resources import SLOTS_MAX
from mycel.core.scheduler.records import Attempt, Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue

from .breaker import Breaker, BreakerState, BreakerStep
from .shape_ends import ShapeEnds
from .verdicts import Verdict

BREAKERS_MAX: Final = 20_000
"""Those of workers that are gone go first: who comes back is a newcomer then."""
TRY_TIMER: Final = "try"
RECALL_TIMER: Final = "recall"
NEWCOMERS_TIMER: Final = "newcomers"
HELD_TIMER: Final = "held"
NEWCOMERS_SECONDS: Final = 0.5
"""How often newcomers that are held back are looked at again…"""
NEWCOMERS_AT_ONCE: Final = 64
"""…and how many of them."""
HELD_SECONDS: Final = 1.0
"""How often attempts are looked at that may be held too long."""

_NOT_TRUSTED_AGAIN: Final = (BreakerState.QUARANTINED, BreakerState.PROBING)


class Guard:
    def __init__(self, state: State) -> None:
        self._state = state
        self._breakers: dict[PeerId, Breaker] = {}
        self._doubtful: dict[PeerId, tuple[Worker, ShapeEnds]] = {}
        """Workers that are not trusted and have been given work, with the shape it was of."""
        self._left: dict[PeerId, None] = {}
        """Of those, the ones that less is out with than before."""
        self._quarantined = 0
        self._held_back = 0
        self._watches_held = False

    # Whom selection leaves out

    def withheld(self, candidates: int) -> int:
        """Who of them gets nothing now, for whatever they could run."""
        mask = 0
        if self._quarantined and without(candidates, self._quarantined):
            mask = self._quarantined
        if self._held_back and candidates & (candidates - 1):
            mask |= self._held_back
        return mask

    def room(self, worker: Worker, queue: ShapeQueue, now: float) -> int:
        """How many attempts more it may be given."""
        breaker, member = self.breaker_of(worker), worker.member
        if breaker.state is BreakerState.TRUSTED or member is None:
            return SLOTS_MAX
        candidates = self._state.pool.candidates(queue.shape)
        if not without(candidates, self._quarantined | 1 << member.slot):
            return SLOTS_MAX
        return breaker.room(worker.book.out, queue.usual.ends, now)

    def breaker_of(self, worker: Worker) -> Breaker:
        found = self._breakers.get(worker.peer)
        if found is None:
            self._make_room()
            settings = self._state.settings.breaker
            is_known = worker.health.succeeded >= settings.newcomer_tasks
            found = self._breakers[worker.peer] = Breaker(worker.peer, settings, trusted=is_known)
        return found

    def _make_room(self) -> None:
        surplus = len(self._breakers) + 1 - max(BREAKERS_MAX, 2 * len(self._state.workers))
        if surplus > 0:
            strangers = (peer for peer in self._breakers if peer not in self._state.workers)
            for peer in list(islice(strangers, surplus)):
                del self._breakers[peer]

    # What happens to attempts

    def sent(self, worker: Worker, queue: ShapeQueue, now: float) -> None:
        if not self._watches_held:
            self._watches_held = True
            self._state.timers.set((HELD_TIMER, None), now + HELD_SECONDS)
        breaker = self.breaker_of(worker)
        if breaker.state is not BreakerState.TRUSTED:
            breaker.sent(now)
            self._doubtful[worker.peer] = (worker, queue.usual.ends)
            self._review(worker, queue.usual.ends, now)

    def left(self, worker: Worker) -> None:
        """An attempt is not out with it any more, for whatever reason."""
        if worker.peer in self._doubtful:
            self._left[worker.peer] = None

    def ended(self, attempt: Attempt, verdict: Verdict, now: float) -> None:
        worker, ends = attempt.worker, attempt.slots.queue.usual.ends
        if verdict is Verdict.GOOD or verdict is Verdict.TASK:
            seconds = now - attempt.sent_at
            ends.add(worker.peer, seconds, failed=verdict is Verdict.TASK)
        breaker = self.breaker_of(worker)
        self._follow(worker, breaker, breaker.ended(verdict, ends, now), now)

    def died(self, worker: Worker, now: float) -> None:
        """Attempts were lost with it: one fault, however many they were."""
        breaker = self.breaker_of(worker)
        reason = "attempts were lost with it"
        self._follow(worker, breaker, breaker.fault(reason, now), now)

    def look(self, now: float) -> None:
        """Before tasks are placed: who may have room again."""
        while self._left:
            peer = next(iter(self._left))
            del self._left[peer]
            found = self._doubtful.get(peer)
            if found is not None:
                self._review(*found, now)

    # What happens to workers

    def stands(self, worker: Worker) -> None:
        """It has a place in the pool, perhaps another than before."""
        if worker.member is None:
            return
        breaker = self._breakers.get(worker.peer)
        if breaker is not None and breaker.state is BreakerState.QUARANTINED:
            self._quarantined |= 1 << worker.member.slot

    def gone(self, worker: Worker) -> None:
        """Its place in the pool may be another's soon."""
        self._doubtful.pop(worker.peer, None)
        self._left.pop(worker.peer, None)
        if worker.member is not None:
            bit = 1 << worker.member.slot
            self._quarantined = without(self._quarantined, bit)
            self._held_back = without(self._held_back, bit)

    def try_it(self, peer: PeerId, now: float) -> None:
        """The pause of a quarantined worker is over."""
        breaker = self._breakers.get(peer)
        if breaker is None or breaker.state is not BreakerState.QUARANTINED:
            return
        breaker.try_it()
        worker = self._state.workers.get(peer)
        if worker is not None and worker.member is not None:
            self._quarantined = without(self._quarantined, 1 << worker.member.slot)
            self._state.has_room(worker)
            self._state.tell("worker.probed", now, worker=peer, name=worker.name)

    def newcomers_due(self, key: object, now: float) -> None:
        for peer in list(islice(self._doubtful, NEWCOMERS_AT_ONCE)):
            found = self._doubtful.pop(peer)
            self._doubtful[peer] = found  # the others have the next turn
            self._review(*found, now)
        self._watch_newcomers(now)

    def held_looked_at(self, now: float) -> None:
        """Again while anything is out."""
        self._watches_held = bool(self._state.attempts)
        if self._watches_held:
            self._state.timers.set((HELD_TIMER, None), now + HELD_SECONDS)

    # For people

    def is_quarantined(self, worker: Worker) -> bool:
        """Also while a task tries it."""
        breaker = self._breakers.get(worker.peer)
        return breaker is not None and breaker.state in _NOT_TRUSTED_AGAIN

    def reason(self, worker: Worker, candidates: int) -> str:
        """Why it gets none of what these candidates could run; empty if it does."""
        member = worker.member
        if member is None or not self.withheld(candidates) >> member.slot & 1:
            return ""
        breaker = self.breaker_of(worker)
        if breaker.state is BreakerState.NEW:
            return "it is new here, and gets more when some tasks have ended well"
        if breaker.state is BreakerState.PROBING:
            return f"a task tries it; it was quarantined: {breaker.reason}"
        return f"it is quarantined: {breaker.reason}"

    # Following the breaker

    def _follow(
        self, worker: Worker, breaker: Breaker, step: BreakerStep | None, now: float
    ) -> None:
        if step is None:
            return
        state = self._state
        if step is BreakerStep.TRIP:
            self._doubtful.pop(worker.peer, None)
            if worker.member is not None:
                bit = 1 << worker.member.slot
                self._quarantined |= bit
                self._held_back = without(self._held_back, bit)
            state.timers.set((TRY_TIMER, worker.peer), breaker.until)
            state.timers.set((RECALL_TIMER, worker.peer), now)
            name, reason, seconds = worker.name, breaker.reason, breaker.until - now
            state.tell(
                "worker.quarantined",
                now,
                worker=worker.peer,
                name=name,
                reason=reason,
                seconds=seconds,
            )
            state.note(
                "worker_quarantined", peer=worker.peer, name=name, reason=reason, seconds=seconds
            )
        elif step is BreakerStep.PASS:
            state.tell("worker.readmitted", now, worker=worker.peer, name=worker.name)
            state.note("worker_readmitted", peer=worker.peer, name=worker.name)
        elif step is BreakerStep.PROVE:
            self._doubtful.pop(worker.peer, None)
            self._let_go(worker)

    def _review(self, worker: Worker, ends: ShapeEnds, now: float) -> None:
        breaker, member = self.breaker_of(worker), worker.member
        if member is None or breaker.state is BreakerState.QUARANTINED:
            return
        if breaker.room(worker.book.out, ends, now):
            self._let_go(worker)
        elif not self._held_back >> member.slot & 1:
            self._held_back |= 1 << member.slot
            self._watch_newcomers(now)

    def _let_go(self, worker: Worker) -> None:
        member = worker.member
        if member is not None and self._held_back >> member.slot & 1:
            self._held_back ^= 1 << member.slot
            self._state.has_room(worker)

    def _watch_newcomers(self, now: float) -> None:
        timers, key = self._state.timers, (NEWCOMERS_TIMER, None)
        if self._held_back and key not in timers:
            timers.set(key, now + NEWCOMERS_SECONDS)
