"""Output of tasks on this terminal, as it comes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from mycel.client.responses import LogPiece
from mycel.console.terminal import Output

from .screen import Screen


class Shown:
    """Writes what tasks write where it belongs; says so when an attempt begins anew."""

    def __init__(
        self,
        only: str | None = None,
        prefixed: bool = False,
        *,
        raw: bool = False,
        screen: Screen | None = None,
    ) -> None:
        """`only` one of the streams, on standard output; `prefixed` with each line's task; `raw`
        on a terminal too, as of a task that one has just sent oneself."""
        self._output = Output(raw=raw)
        self._only = only
        self._prefixed = prefixed
        self._screen = screen or Screen()
        self._attempts: dict[str, int] = {}
        self._written: dict[tuple[str, int, str], int] = {}
        """How much there was of each stream, with what was left out."""
        self._told: dict[tuple[str, int, str], int] = {}
        """The same, since the scheduler began to tell it anew."""
        self._last = ("", "")

    def show_all(self, pieces: Iterable[LogPiece]) -> None:
        for piece in pieces:
            self.show(piece)

    def begin_again(self) -> None:
        """The pieces that follow are told from the beginning: what was shown is not shown again."""
        self._told.clear()

    def show(self, piece: LogPiece) -> None:
        with self._screen.writing():
            self._show(piece)

    def _show(self, piece: LogPiece) -> None:
        before = self._attempts.setdefault(piece.task_id, piece.attempt)
        if piece.attempt > before:
            self._attempts[piece.task_id] = piece.attempt
            self._note(f"attempt {piece.attempt} of {piece.task_id} begins")
        if self._only not in (None, piece.stream):
            return
        new, left_out = self._new_of(piece)
        if left_out:
            self._note(f"{left_out} bytes of {piece.stream} are left out here")
        if not new:
            return
        is_error = piece.stream == "stderr" and self._only is None
        out = sys.stderr if is_error else sys.stdout
        if self._prefixed:
            self._lines(out, piece, new)
        else:
            self._output.write(out, new)
            self._screen.is_within_line = not new.endswith(b"\n")
        out.buffer.flush()

    def _new_of(self, piece: LogPiece) -> tuple[bytes, int]:
        """What of it was not shown, and how much is missing before that."""
        key = (piece.task_id, piece.attempt, piece.stream)
        shown = self._written.get(key, 0)
        begin = self._told.get(key, 0) + piece.left_out_bytes
        end = self._told[key] = begin + len(piece.data)
        self._written[key] = max(shown, end)
        return piece.data[max(0, shown - begin) :], max(0, begin - shown)

    def _lines(self, out: TextIO, piece: LogPiece, data: bytes) -> None:
        """Lines of different tasks never share a line."""
        source = (piece.task_id, piece.stream)
        if self._screen.is_within_line and source != self._last:
            out.buffer.write(b"\n")
            self._screen.is_within_line = False
        self._last = source
        prefix = f"[{piece.task_id.rpartition('.')[2]}] ".encode()
        for line in data.splitlines(keepends=True):
            self._output.write(out, line if self._screen.is_within_line else prefix + line)
            self._screen.is_within_line = not line.endswith(b"\n")

    @staticmethod
    def _note(text: str) -> None:
        sys.stdout.flush()
        print(f"mycel: {text}", file=sys.stderr, flush=True)
