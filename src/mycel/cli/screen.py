"""A terminal whose last line shows how far something is, below whatever else is printed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mycel.console.terminal import clean, write_own

_CLEAR = "\r\033[K"


class Screen:
    """Thread-safe. The last line is on standard error, and only if that is a terminal."""

    def __init__(self) -> None:
        self.is_live = sys.stderr.isatty()
        self._lock = threading.RLock()
        self._status = ""
        self._is_shown = False
        self.is_within_line = False
        """What was printed last has not ended its line: nothing can stand below it."""

    def show(self, status: str) -> None:
        """In place of what stood there."""
        with self._lock:
            self._status = clean(status)
            self._draw()

    def clear(self) -> None:
        self.show("")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While something else is printed."""
        with self._lock:
            self._erase()
            try:
                yield
            finally:
                sys.stdout.flush()
                self._draw()

    def line(self, text: str) -> None:
        with self.writing():
            self._end_line()
            print(text)

    def note(self, text: str) -> None:
        with self.writing():
            self._end_line()
            print(f"mycel: {text}", file=sys.stderr, flush=True)

    def _end_line(self) -> None:
        if self.is_within_line:
            print(flush=True)
            self.is_within_line = False

    def _erase(self) -> None:
        if self._is_shown:
            write_own(sys.stderr, _CLEAR)
            sys.stderr.flush()
            self._is_shown = False

    def _draw(self) -> None:
        if not self.is_live or self.is_within_line:
            return
        if self._status or self._is_shown:
            write_own(sys.stderr, _CLEAR + self._status)
            sys.stderr.flush()
            self._is_shown = bool(self._status)
