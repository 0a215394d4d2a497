"""Known workers without a link are looked after too: each is asked for a sign of life once in a
health-check interval, so that one that died leaves the table although no link of it broke.

    known ── nothing heard for an interval ──▶ checked ─┬─ answers ─▶ known
      ▲                                                 ├─ nobody listens there any more ─▶ dead
      └── answers ── suspect, checked again ◀─ silent ──┘
                            └── silent for `max_consecutive_failures` checks ─▶ dead

A suspect is not called: a frozen worker gets no work. Checks are paced, because each may cost a
connection: `CHECKS_PER_SECOND` walk through 10,000 workers in less than two intervals. Workers
that tasks want need no check: they are called, and a call tells the same.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mycel.core.effects import Check
from mycel.core.events import CheckAnswered
from mycel.core.identifiers import PeerId

from .known import KnownWorker
from .state import State

CHECKS_PER_SECOND: Final = 200
CHECKS_MAX: Final = 64
"""At once; a silent one takes `health_check_timeout`."""
BATCH_SECONDS: Final = 0.1
BATCH_MAX: Final = int(CHECKS_PER_SECOND * BATCH_SECONDS)


class Checking:
    def __init__(self, state: State) -> None:
        self._state = state
        self._turns: dict[PeerId, float] = {}
        """When each known worker is due: the next one first, since each comes back to the end."""
        self._open: dict[PeerId, None] = {}
        """Asked, and neither answered nor late."""

    def known(self, peer: PeerId, now: float) -> None:
        """It is known without a link from now on. Who hears of it again learns nothing of
        whether it lives: its turn stays."""
        if peer not in self._turns and peer not in self._open:
            self._enqueue(peer, now)

    def forget(self, peer: PeerId) -> None:
        """It is linked, called, or not known any more."""
        self._turns.pop(peer, None)
        if peer in self._open:
            self._end(peer)

    def _enqueue(self, peer: PeerId, now: float) -> None:
        self._turns[peer] = now + self._state.settings.health_check_interval
        if len(self._turns) == 1:
            self._state.timers.set(("checks", None), self._turns[peer])

    def due(self, key: object, now: float) -> None:
        """A few at a time."""
        timers = self._state.timers
        room = min(BATCH_MAX, CHECKS_MAX - len(self._open))
        for peer, due_at in list(islice(self._turns.items(), room)):
            if due_at > now:
                break
            del self._turns[peer]
            self._ask(peer, now)
        if self._turns:
            first = next(iter(self._turns.values()))
            timers.set(("checks", None), max(first, now + BATCH_SECONDS))

    def _ask(self, peer: PeerId, now: float) -> None:
        state = self._state
        known = state.known.get(peer)
        assert known is not None, "a worker that is not known has its turn"
        self._open[peer] = None
        state.emit(Check(peer, known.addresses))
        state.timers.set(("check", peer), now + state.settings.health_check_timeout)

    def _end(self, peer: PeerId) -> None:
        del self._open[peer]
        self._state.timers.cancel(("check", peer))

    # What comes of it

    def answered(self, event: CheckAnswered, now: float) -> None:
        known = self._state.known.get(event.peer)
        if known is None:
            self._state.known.unbury(event.peer)  # it was only late: its record counts again
        if known is None or event.peer not in self._open:
            return
        self._end(event.peer)
        self._enqueue(event.peer, now)
        was_suspect = known.missed > 0
        self._state.known.heard(known, event.seconds, now)
        if was_suspect:
            self._state.tell("worker.heard", now, worker=known.peer, name=known.name)

    def refused(self, peer: PeerId, now: float) -> None:
        """Nobody listens at its address: that is certain, and there is nothing to wait for."""
        known = self._state.known.get(peer)
        if known is not None and peer in self._open:
            self._died(known, "nobody listens at its address any more", now)

    def late(self, peer: PeerId, now: float) -> None:
        """No answer in time; whatever else went wrong with the check, time alone counts."""
        state = self._state
        known = state.known.get(peer)
        assert known is not None, "a worker that is not known is checked"
        state.known.missed(known)
        if known.missed >= state.settings.max_consecutive_failures:
            self._died(known, "it was silent for too long", now)
            return
        state.tell("worker.silent", now, worker=peer, name=known.name, missed=known.missed)
        self._ask(peer, now)

    def _died(self, known: KnownWorker, reason: str, now: float) -> None:
        state = self._state
        self.forget(known.peer)
        state.timers.cancel(("forget", known.peer))
        state.known.take(known.peer)
        state.known.bury(known.peer, known.boot, state.unix(now))
        state.tell("worker.dead", now, worker=known.peer, name=known.name, reason=reason)
        state.note("worker_dead", peer=known.peer, name=known.name, reason=reason)
