"""Progress as it happens: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

LINES = 8
"""Without a terminal the progress is told so often."""


class Progress(Protocol):
    def say(self, line: str) -> None: ...
    def bar(self, total: int) -> AbstractContextManager[None]: ...
    def advance(self, done: int, total: int) -> None: ...


def progress(stream: TextIO) -> Progress:
    return _Bar(stream) if stream.isatty() else _Lines(stream)


class _Lines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told = 0

    def say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    @contextmanager
    def bar(self, total: int) -> Iterator[None]:
        assert total > 0
        yield

    def advance(self, done: int, total: int) -> None:
        if done * LINES // total > self._told or done == total:
            self._told = done * LINES // total
            self.say(f"  {done} of {total} tasks have finished")


class _Bar:
    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bars
        from rich.progress import TimeElapsedColumn

        self._console = Console(file=stream, highlight=False)
        self._bars = Bars(*Bars.get_default_columns(), TimeElapsedColumn(), console=self._console)
        self._task = self._bars.add_task("Training", visible=False)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False)

    @contextmanager
    def bar(self, total: int) -> Iterator[None]:
        self._bars.update(self._task, total=total, visible=True)
        with self._bars:
            yield

    def advance(self, done: int, total: int) -> None:
        self._bars.update(self._task, completed=done, total=total)
