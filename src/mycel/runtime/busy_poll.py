"""Keeps the event loop busy for a moment while an answer is about to arrive.

An idle processor falls asleep, and waking it takes longer than much of the work it is woken for:
a fifth of a lone task's time from end to end. So a scheduler that has sent a lone task keeps its
loop turning until the answer comes, and then until the client's next request, but never for long.
Between two rounds any other process can have the processor. If one takes it, polling stops, since
it helps only on an idle machine. After polling in vain, the next few times are skipped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

POLL_SECONDS_MAX: Final = 0.0005
"""Most answers arrive within half of it."""
ROUND_SECONDS_MAX: Final = 0.0002
"""If a round takes longer, another process has had the processor."""
SKIPPED_AFTER_FAILURE: Final = 5

CallSoon = Callable[[Callable[[], None]], object]


class BusyPoll:
    """A scheduler's, for the answer to a lone task and for the request after it."""

    def __init__(
        self,
        call_soon: CallSoon,
        tasks_out: Callable[[], int],
        *,
        now: Callable[[], float] = time.perf_counter,
        give_way: Callable[[], None] = os.sched_yield,
    ) -> None:
        self._tasks_out = tasks_out
        self._answer = _Wait(call_soon, now, give_way)
        self._request = _Wait(call_soon, now, give_way)

    def tasks_sent(self) -> None:
        if self._tasks_out() == 1:
            self._answer.begin()

    def request_arrived(self) -> None:
        self._request.end()

    def answer_arrived(self) -> bool:
        """Whether it was polled for."""
        return self._answer.end()

    def answer_handled(self, was_polled: bool) -> None:
        if was_polled and not self._tasks_out():
            self._request.begin()


class _Wait:
    def __init__(
        self, call_soon: CallSoon, now: Callable[[], float], give_way: Callable[[], None]
    ) -> None:
        self._call_soon = call_soon
        self._now = now
        self._give_way = give_way
        self._is_on = False
        self._ends_at = self._round_at = 0.0
        self._to_skip = 0

    def begin(self) -> None:
        if self._to_skip:
            self._to_skip -= 1
        elif not self._is_on:
            self._is_on = True
            self._call_soon(self._first_round)

    def end(self) -> bool:
        """Whether it was polling."""
        was_on, self._is_on = self._is_on, False
        return was_on

    def _first_round(self) -> None:
        """Runs after everything else in this round of the loop."""
        self._round_at = self._now()
        self._ends_at = self._round_at + POLL_SECONDS_MAX
        self._round()

    def _round(self) -> None:
        if not self._is_on:
            return
        self._give_way()
        now = self._now()
        if now > self._ends_at or now - self._round_at > ROUND_SECONDS_MAX:
            self._is_on = False
            self._to_skip = SKIPPED_AFTER_FAILURE
            return
        self._round_at = now
        self._call_soon(self._round)
