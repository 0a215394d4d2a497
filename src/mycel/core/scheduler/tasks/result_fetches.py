"""Results that are too large for a message: fetched from their worker piece by piece.

    worker: outcome with `value_size` ──▶ fetch ──▶ part ──▶ journal    (again and again)
                                            └── all there, digest fits ──▶ the attempt ends

The scheduler asks, so it decides how much is under way, and holds one part of each at a time.
Every part is journalled, and with that durable, before the end that stands on it. Whatever ends
the attempt meanwhile ends the fetch; a worker that comes back brings its outcome again.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from mycel.core.journal import PartKept
from mycel.core.messages import Fetch, Outcome, ResultPart
from mycel.core.scheduler.records import Fetching, Worker
from mycel.core.scheduler.state import State

from .attempts import DAMAGED, Attempts

FETCHES_MAX: Final = 4
"""Under way at once; the others wait for their turn."""
SHARE_MAX: Final = 2
"""Of one worker, and of all who joined by one invite: the rest is for others."""
STALLED_SECONDS: Final = 10.0
"""A worker that has sent nothing for so long holds up nobody but itself and its family."""


class Fetches:
    def __init__(self, state: State, attempts: Attempts) -> None:
        self._state = state
        self._attempts = attempts

    def outcomes(
        self, worker: Worker, outcomes: list[Outcome], clock_offset: float, now: float
    ) -> None:
        """Takes those that must be fetched out of the way of the others."""
        if not any(outcome.value_size for outcome in outcomes):
            self._attempts.outcomes(worker, outcomes, clock_offset, now)
            return
        small = []
        for outcome in outcomes:
            attempt = worker.attempts.get(outcome.attempt)
            if attempt is None or outcome.state != "succeeded" or not outcome.value_size:
                small.append(msgspec.structs.replace(outcome, value_size=0))
            elif outcome.value_size > self._state.settings.value_bytes_max:
                small.append(self._too_large(outcome))
            else:
                self._state.fetches[attempt.id] = Fetching(
                    attempt, outcome, clock_offset, self._state.hasher()
                )
        self._attempts.outcomes(worker, small, clock_offset, now)

    def _too_large(self, outcome: Outcome) -> Outcome:
        limit = self._state.settings.value_bytes_max
        error = f"its result of {outcome.value_size} bytes is over the limit of {limit}"
        return msgspec.structs.replace(outcome, state="failed", error=error, value_size=0)

    def go_on(self, now: float) -> None:
        """Asks for the first part of those whose turn it is."""
        fetches, turns, taken = self._state.fetches.values(), 0, Counter[str]()
        for fetching in fetches:
            if fetching.asked_at is not None:
                turns += now < fetching.asked_at + STALLED_SECONDS
                taken[self._account(fetching)] += 1
        for fetching in fetches:
            if turns >= FETCHES_MAX:
                return
            account = self._account(fetching)
            if fetching.asked_at is None and taken[account] < SHARE_MAX:
                turns += 1
                taken[account] += 1
                self._ask(fetching, now)

    def _account(self, fetching: Fetching) -> str:
        peer = fetching.attempt.worker.peer
        family = self._state.principal_of(peer).family
        return peer if family is None else family.serial.hex()

    def _ask(self, fetching: Fetching, now: float) -> None:
        fetching.asked_at = now
        length = self._state.settings.fetch_bytes
        fetch = Fetch(fetching.attempt.id, fetching.received, length)
        self._state.send(fetching.attempt.worker.peer, fetch)

    def part(self, worker: Worker, message: ResultPart, arrived_at: float, now: float) -> None:
        fetching = self._state.fetches.get(message.attempt)
        if (
            fetching is None
            or fetching.attempt.worker is not worker
            or message.offset != fetching.received
        ):
            return  # of a fetch that was given up
        rest = fetching.outcome.value_size - fetching.received
        received = fetching.received + len(message.data)
        if len(message.data) != min(rest, self._state.settings.fetch_bytes):
            self._end(fetching, "its worker does not have the result that it announced", now)
            return
        attempt = fetching.attempt
        self._state.record(
            PartKept(attempt.job.number, attempt.index, attempt.id, fetching.received, message.data)
        )
        fetching.hasher.update(message.data)
        fetching.received = received
        if received < fetching.outcome.value_size:
            self._ask(fetching, now)
        elif fetching.hasher.digest() != fetching.outcome.digest:
            self._end(fetching, DAMAGED, now)
        else:
            self._conclude(fetching, fetching.outcome, now)

    def _end(self, fetching: Fetching, error: str, now: float) -> None:
        self._conclude(fetching, self._attempts.damaged(fetching.outcome, error), now)

    def _conclude(self, fetching: Fetching, outcome: Outcome, now: float) -> None:
        attempt = fetching.attempt
        del self._state.fetches[attempt.id]
        self._attempts.outcomes(attempt.worker, [outcome], fetching.clock_offset, now)

    def link_lost(self, worker: Worker) -> None:
        """What it announced, it will announce again."""
        fetches = self._state.fetches
        for attempt_id in [one for one in fetches if one in worker.attempts]:
            del fetches[attempt_id]
