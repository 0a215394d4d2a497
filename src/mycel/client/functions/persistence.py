"""Trying again while the scheduler cannot be reached, or has no room for now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from mycel.client.errors import Busy, ConnectionLost, NotRunning
from mycel.client.responses import Result

if TYPE_CHECKING:
    from mycel.client.client import Client

PATIENCE_SECONDS: Final = 600.0
PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 2.0
_TRANSIENT: Final = (ConnectionLost, NotRunning, Busy)

Answer = TypeVar("Answer")


class _Patience:
    def __init__(self) -> None:
        self._ends_at = time.monotonic() + PATIENCE_SECONDS
        self._pause = PAUSE_SECONDS_MIN

    def wait(self, error: Exception) -> None:
        if time.monotonic() > self._ends_at:
            raise error
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)


def persistently(ask: Callable[[], Answer]) -> Answer:
    """Only for what changes nothing the second time."""
    patience = _Patience()
    while True:
        try:
            return ask()
        except _TRANSIENT as error:
            patience.wait(error)


def lines(client: Client, job_id: str) -> Iterator[Result]:
    """A job's results until it has ended, whatever happens to the connection."""
    after, patience = 0, _Patience()
    while True:
        try:
            for result in client.results(job_id, after=after):
                after, patience = result.sequence, _Patience()
                yield result
            return
        except _TRANSIENT as error:
            patience.wait(error)


def until(look: Callable[[], bool], seconds: float) -> None:
    """Or until the time is over."""
    ends_at = time.monotonic() + seconds
    while not look() and time.monotonic() < ends_at:
        time.sleep(PAUSE_SECONDS_MIN)
