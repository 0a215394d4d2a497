"""Who listens to what happens: bounded, so that a slow listener costs nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from mycel.core.effects import Happening

LISTENERS_MAX: Final = 100
HAPPENINGS_MAX: Final = 10_000
"""Kept for one listener until it takes them; with more it has fallen behind."""


class Crowded(Exception):
    """So many listen already."""


class Listener:
    def __init__(self) -> None:
        self.news = asyncio.Event()
        """Set when something has happened, or tasks have ended; cleared by whoever reads."""
        self.fell_behind = False
        self.over = False
        """The scheduler stops."""
        self._happenings: list[Happening] = []

    def take(self) -> list[Happening]:
        taken, self._happenings = self._happenings, []
        return taken

    def give(self, happenings: Sequence[Happening]) -> None:
        if len(self._happenings) + len(happenings) > HAPPENINGS_MAX:
            self.fell_behind = True
        else:
            self._happenings.extend(happenings)
        self.news.set()


class Audience:
    """`listen` is told when the first comes and the last has gone."""

    def __init__(self, listen: Callable[[bool], None]) -> None:
        self._listen = listen
        self._listeners: set[Listener] = set()

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        if len(self._listeners) >= LISTENERS_MAX:
            raise Crowded
        listener = Listener()
        if not self._listeners:
            self._listen(True)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners:
                self._listen(False)

    def tell(self, happenings: Sequence[Happening]) -> None:
        for listener in self._listeners:
            listener.give(happenings)

    def wake(self) -> None:
        for listener in self._listeners:
            listener.news.set()

    def close(self) -> None:
        for listener in self._listeners:
            listener.over = True
            listener.news.set()
