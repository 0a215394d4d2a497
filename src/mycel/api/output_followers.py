"""Who follows what tasks write: bounded, so that a slow reader costs nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mycel.store.live_logs import Stretch

from .event_listeners import Crowded

LISTENERS_MAX: Final = 200
WAITING_BYTES_MAX: Final = 8 << 20
"""Kept for one listener until it takes them; what comes above it is left out for it."""

News = tuple[int, Stretch | None]
"""A task's index, and what it wrote; None when it has ended."""


class OutputListener:
    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        """Set when there is news, or the scheduler stops; cleared by `take`."""
        self.over = False
        self._news: list[News] = []
        self._bytes = 0

    def take(self) -> list[News]:
        self.arrived.clear()
        taken, self._news, self._bytes = self._news, [], 0
        return taken

    def give(self, index: int, stretch: Stretch | None) -> None:
        size = 0 if stretch is None else len(stretch.data)
        if self._bytes + size <= WAITING_BYTES_MAX:
            self._news.append((index, stretch))
            self._bytes += size
        self.arrived.set()


class OutputAudience:
    def __init__(self) -> None:
        self._listeners: dict[tuple[str, int | None], set[OutputListener]] = {}
        self._count = 0

    @contextmanager
    def listening(self, job: str, index: int | None) -> Iterator[OutputListener]:
        """To one task, or to all of a job."""
        if self._count >= LISTENERS_MAX:
            raise Crowded
        self._count += 1
        listener = OutputListener()
        self._listeners.setdefault((job, index), set()).add(listener)
        try:
            yield listener
        finally:
            self._count -= 1
            others = self._listeners[job, index]
            others.discard(listener)
            if not others:
                del self._listeners[job, index]

    def wrote(self, job: str, index: int, stretch: Stretch) -> None:
        self._tell(job, index, stretch)

    def left(self, job: str, index: int) -> None:
        self._tell(job, index, None)

    def _tell(self, job: str, index: int, stretch: Stretch | None) -> None:
        if self._listeners:
            for key in ((job, index), (job, None)):
                for listener in self._listeners.get(key, ()):
                    listener.give(index, stretch)

    def close(self) -> None:
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.over = True
                listener.arrived.set()
