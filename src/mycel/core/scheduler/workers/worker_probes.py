"""Known workers without a link are looked after too: each is asked for a sign of life once in a
health-check interval, so that one that died leaves the table although no link of it broke.

    known ── nothing heard for an interval ──▶ checked ─┬─ answers ─▶ known
      ▲                                                 ├─ nobody listens there any more ─▶ dead
      └── answers ── suspect, checked again ◀─ silent ──┘
                            └── silent for `max_consecutive_failures` checks ─▶ dead

A suspect is not called: a frozen worker gets no work. Workers that tasks want need no check:
they are called, and a call tells the same.

Most checks are knocks, which cost next to nothing, and are dialled where nobody answers them.
Every so often, and always where knocks are not heard, a check is *thorough*: a connection, which
says who answers. It is paced as so many knocks (`THOROUGH_COST`), and there is room for a few
at once only: when thousands of machines vanish together, most are not dialled. Then the silence
of a worker that has heard knocks before counts by itself, as long as others hear theirs; any
other is put off until there is room, and counted as checked late.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mycel.core.effects import Check
from mycel.core.events import CheckAnswered, CheckPutOff
from mycel.core.identifiers import PeerId
from mycel.core.scheduler.state import State

from .known_workers import KnownWorker

CHECKS_PER_SECOND: Final = 400
"""10,000 workers in 25 seconds, if most hear knocks."""
CHECKS_MAX: Final = 4096
"""At once; a silent worker is checked `max_consecutive_failures` times in a row."""
BATCH_SECONDS: Final = 0.1
BATCH_MAX: Final = int(CHECKS_PER_SECOND * BATCH_SECONDS)
CATCH_UP_SECONDS: Final = 0.4
"""So much of what a busy machine has delayed comes with the next batch."""
THOROUGH_COST: Final = 4
"""In knocks: 100 connections a second at the most."""
KNOCKS_MAX: Final = 20
"""In a row; ten minutes of them, by default. The next check is thorough."""
DEAF_CHECKS: Final = 20
"""So many checks later a worker that hears no knocks may hear them."""


class Checking:
    def __init__(self, state: State) -> None:
        self._state = state
        self._turns: dict[PeerId, float] = {}
        """When each known worker is due: the next one first, since each comes back to the end."""
        self._open: dict[PeerId, None] = {}
        """Asked, and neither answered nor late."""
        self._put_off: set[PeerId] = set()
        """Those among them that nobody has dialled, and whose silence says nothing."""
        self._knock_heard_at: float | None = None
        """By any worker."""
        self._batch_at = 0.0
        """When the next batch is due."""

    def known(self, peer: PeerId, now: float) -> None:
        """It is known without a link from now on. Who hears of it again learns nothing of
        whether it lives: its turn stays."""
        if peer in self._turns or peer in self._open:
            return
        known = self._state.known.get(peer)
        assert known is not None, "a worker that is not known gets a turn"
        # Spread, so that those who come together are not dialled together later.
        known.knocks_left = 1 + int(self._state.random() * KNOCKS_MAX)
        self._enqueue(peer, now)

    def forget(self, peer: PeerId) -> None:
        """It is linked, called, or not known any more."""
        self._turns.pop(peer, None)
        if peer in self._open:
            self._end(peer)

    def _enqueue(self, peer: PeerId, now: float) -> None:
        self._turns[peer] = now + self._state.settings.health_check_interval
        if len(self._turns) == 1:
            self._next_batch(self._turns[peer])

    def _next_batch(self, when: float) -> None:
        self._batch_at = when
        self._state.timers.set(("checks", None), when)

    def due(self, key: object, now: float) -> None:
        """A few at a time."""
        state = self._state
        late_before = now - state.settings.health_check_timeout
        delay = min(max(0.0, now - self._batch_at), CATCH_UP_SECONDS)
        room = BATCH_MAX + int(CHECKS_PER_SECOND * delay)
        for peer, due_at in list(islice(self._turns.items(), room)):
            if due_at > now or room <= 0 or len(self._open) >= CHECKS_MAX:
                break
            del self._turns[peer]
            state.checks_late += due_at < late_before
            room -= THOROUGH_COST if self._ask(peer, now) else 1
        if self._turns:
            first = next(iter(self._turns.values()))
            self._next_batch(max(first, now + BATCH_SECONDS))

    def _ask(self, peer: PeerId, now: float) -> bool:
        """Whether it takes a connection."""
        state = self._state
        known = state.known.get(peer)
        assert known is not None, "a worker that is not known has its turn"
        is_thorough = known.knocks_left <= 0
        seconds = state.settings.health_check_timeout
        self._open[peer] = None
        state.emit(Check(peer, known.addresses, seconds, is_thorough))
        state.timers.set(("check", peer), now + seconds)
        return is_thorough

    def _end(self, peer: PeerId) -> None:
        del self._open[peer]
        self._put_off.discard(peer)
        self._state.timers.cancel(("check", peer))

    # What comes of it

    def answered(self, event: CheckAnswered, now: float) -> None:
        known = self._state.known.get(event.peer)
        if event.hears_knocks:
            self._knock_heard_at = now
        elif known is None:
            self._state.known.unbury(event.peer)  # it was only late: its record counts again
        if known is None or event.peer not in self._open:
            return
        self._end(event.peer)
        self._enqueue(event.peer, now)
        self._learn(known, event.hears_knocks)
        was_suspect = known.missed > 0
        self._state.known.heard(known, event.seconds, now)
        if was_suspect:
            self._state.tell("worker.heard", now, worker=known.peer, name=known.name)

    @staticmethod
    def _learn(known: KnownWorker, hears_knocks: bool | None) -> None:
        """How to ask it next time."""
        if hears_knocks is not None:
            known.hears_knocks = hears_knocks
            known.knocks_left = max(0, known.knocks_left - 1) if hears_knocks else -DEAF_CHECKS
        elif known.knocks_left < 0:
            known.knocks_left += 1
        else:
            known.knocks_left = KNOCKS_MAX

    def put_off(self, event: CheckPutOff, now: float) -> None:
        known = self._state.known.get(event.peer)
        if known is None or event.peer not in self._open:
            return
        if not event.after_knocks or not self._hears_as_others_do(known, now):
            self._put_off.add(event.peer)

    def _hears_as_others_do(self, known: KnownWorker, now: float) -> bool:
        """Then its silence counts. Not if our own network may be losing every knock."""
        heard_at = self._knock_heard_at
        lately = now - self._state.settings.health_check_timeout
        return known.hears_knocks and heard_at is not None and heard_at >= lately

    def refused(self, peer: PeerId, now: float) -> None:
        """Nobody listens at its address: that is certain, and there is nothing to wait for."""
        known = self._state.known.get(peer)
        if known is not None and peer in self._open:
            self._died(known, "nobody listens at its address any more", now)

    def late(self, peer: PeerId, now: float) -> None:
        """No answer in time; whatever else went wrong with the check, time alone counts, unless
        it was not really asked."""
        state = self._state
        known = state.known.get(peer)
        if known is None or peer not in self._open:
            return  # it was called or forgotten in the same moment
        if peer in self._put_off:
            self._put_off.discard(peer)
            state.checks_late += 1
            self._ask(peer, now)
            return
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
