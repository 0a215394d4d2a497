"""The hours at which a worker takes work: shuts it outside of them, and opens it again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from mycel.core.events import Event, Reopen, Shut
from mycel.core.model import hours
from mycel.runtime.clock import Clock

CAUSE: Final = "hours"
LOOK_SECONDS: Final = 30.0
"""The wall clock may be set, or stand still while the machine sleeps: so often it is read."""


def local_minute() -> int:
    """Of the week, by this machine's wall clock."""
    now = time.localtime()
    return now.tm_wday * hours.DAY_MINUTES + now.tm_hour * 60 + now.tm_min


class Attending:
    def __init__(
        self,
        clock: Clock,
        post: Callable[[Event], None],
        texts: Sequence[str],
        minute: Callable[[], int] = local_minute,
    ) -> None:
        self._clock = clock
        self._post = post
        self._said = ", ".join(texts)
        self._spans = tuple(span for text in texts for span in hours.parse(text))
        self._minute = minute
        self._is_open = True
        self._stopped = False

    def start(self) -> None:
        if self._spans:
            self._look()

    def stop(self) -> None:
        self._stopped = True

    def _look(self) -> None:
        if self._stopped:
            return
        is_open = hours.is_within(self._spans, self._minute())
        if is_open != self._is_open:
            self._is_open = is_open
            reason = f"it takes work at {self._said} only"
            self._post(Reopen(CAUSE) if is_open else Shut(CAUSE, reason))
        self._clock.call_at(self._clock.now() + LOOK_SECONDS, self._look)
