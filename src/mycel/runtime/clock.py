"""Time, as a node knows it: CLOCK_BOOTTIME, which goes on while a laptop sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

ROUNDING_SECONDS: Final = 0.0015
"""uvloop rounds to whole milliseconds and counts them from when its round began: without this,
a timer is early, finds nothing due and is set anew, ten times in the last half millisecond."""


class Clock(Protocol):
    def now(self) -> float:
        """Seconds; only differences mean anything."""
        ...

    def unix(self) -> float: ...

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Next, but never inside this call."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """Not before `when`; at once if that has passed, but never inside this call."""
        ...


def boot_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LoopClock:
    """The clock of an asyncio loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.call_soon = loop.call_soon

    def now(self) -> float:
        return boot_seconds()

    def unix(self) -> float:
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        delay = when - boot_seconds()
        if delay <= 0:
            self._loop.call_soon(callback)
        else:
            self._loop.call_later(delay + ROUNDING_SECONDS, callback)
