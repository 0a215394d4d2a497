"""Stays awake for a moment while something is about to come.

A processor with nothing to do falls asleep, and to wake it takes longer than much of the work
that it is woken for: of what a lone task takes from end to end that is a fifth. So who has sent a
lone task keeps its loop turning until the answer comes, and then for the client's next one, but
never for long. Whoever else wants the processor gets it between two rounds, and the vigil is
over: it is of use on an idle machine only. After one in vain the next few are left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

MOMENT_SECONDS: Final = 0.0005
"""Most answers come within half of it."""
ROUND_SECONDS_MAX: Final = 0.0002
"""When one takes longer, somebody else has had the processor."""
LEFT_OUT: Final = 5

CallSoon = Callable[[Callable[[], None]], object]


class Vigil:
    """Of a scheduler, for the answer to a lone task and for the question after it."""

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
        self._question = _Wait(call_soon, now, give_way)

    def sent(self) -> None:
        """Tasks have left for a worker."""
        if self._tasks_out() == 1:
            self._answer.begin()

    def asked(self) -> None:
        self._question.end()

    def hears(self, take: Callable[[], None]) -> None:
        """`take` takes in what has come from a worker."""
        was_awaited = self._answer.end()
        take()
        if was_awaited and not self._tasks_out():
            self._question.begin()


class _Wait:
    def __init__(
        self, call_soon: CallSoon, now: Callable[[], float], give_way: Callable[[], None]
    ) -> None:
        self._call_soon = call_soon
        self._now = now
        self._give_way = give_way
        self._is_on = False
        self._ends_at = self._round_at = 0.0
        self._to_leave_out = 0

    def begin(self) -> None:
        if self._to_leave_out:
            self._to_leave_out -= 1
        elif not self._is_on:
            self._is_on = True
            self._call_soon(self._first_round)

    def end(self) -> bool:
        """It has come; whether it was waited for."""
        was_on, self._is_on = self._is_on, False
        return was_on

    def _first_round(self) -> None:
        """When all is done that was left to do in this round of the loop."""
        self._round_at = self._now()
        self._ends_at = self._round_at + MOMENT_SECONDS
        self._round()

    def _round(self) -> None:
        if not self._is_on:
            return
        self._give_way()
        now = self._now()
        if now > self._ends_at or now - self._round_at > ROUND_SECONDS_MAX:
            self._is_on = False
            self._to_leave_out = LEFT_OUT
            return
        self._round_at = now
        self._call_soon(self._round)
