"""Going on when the scheduler was away and is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from mycel.client.errors import Busy, ClientError, ConnectionLost, NotRunning

PATIENCE_SECONDS: Final = 600.0
"""A scheduler that is away for so long is given up."""
PAUSE_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)
AWAY: Final = (ConnectionLost, NotRunning, Busy)
"""What is said of one that is away, or not ready yet."""

_Item = TypeVar("_Item")


def patiently(
    stream: Callable[[], Iterator[_Item]],
    say_away: Callable[[ClientError], None],
    over: threading.Event | None = None,
) -> Iterator[_Item]:
    """What it gives, and again what it gives then, when the scheduler has come back."""
    over = over or threading.Event()
    pauses = iter(PAUSE_SECONDS)
    away_since: float | None = None
    while not over.is_set():
        try:
            for item in stream():
                away_since, pauses = None, iter(PAUSE_SECONDS)
                yield item
            return
        except AWAY as error:
            now = time.monotonic()
            away_since = now if away_since is None else away_since
            if now - away_since > PATIENCE_SECONDS:
                raise
            say_away(error)
            over.wait(next(pauses, PAUSE_SECONDS[-1]))
