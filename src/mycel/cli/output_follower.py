"""Output of tasks on this terminal, as it comes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from mycel.client.responses import LogPiece
from mycel.console.terminal import Output


class Shown:
    """Writes what tasks write where it belongs; says so when an attempt begins anew."""

    def __init__(
        self, only: str | None = None, prefixed: bool = False, *, raw: bool = False
    ) -> None:
        """`only` one of the streams, on standard output; `prefixed` with each line's task; `raw`
        on a terminal too, as of a task that one has just sent oneself."""
        self._output = Output(raw=raw)
        self._only = only
        self._prefixed = prefixed
        self._attempts: dict[str, int] = {}
        self._last = ("", "")
        self._is_within_line = False

    def show_all(self, pieces: Iterable[LogPiece]) -> None:
        for piece in pieces:
            self.show(piece)

    def show(self, piece: LogPiece) -> None:
        before = self._attempts.setdefault(piece.task_id, piece.attempt)
        if piece.attempt > before:
            self._attempts[piece.task_id] = piece.attempt
            self._note(f"attempt {piece.attempt} of {piece.task_id} begins")
        if self._only not in (None, piece.stream):
            return
        if piece.left_out_bytes:
            self._note(f"{piece.left_out_bytes} bytes of {piece.stream} are left out here")
        is_error = piece.stream == "stderr" and self._only is None
        out = sys.stderr if is_error else sys.stdout
        if self._prefixed:
            self._lines(out, piece)
        else:
            self._output.write(out, piece.data)
        out.buffer.flush()

    def _lines(self, out: TextIO, piece: LogPiece) -> None:
        """Lines of different tasks never share a line."""
        source = (piece.task_id, piece.stream)
        if self._is_within_line and source != self._last:
            out.buffer.write(b"\n")
            self._is_within_line = False
        self._last = source
        prefix = f"[{piece.task_id.rpartition('.')[2]}] ".encode()
        for line in piece.data.splitlines(keepends=True):
            self._output.write(out, line if self._is_within_line else prefix + line)
            self._is_within_line = not line.endswith(b"\n")

    @staticmethod
    def _note(text: str) -> None:
        sys.stdout.flush()
        print(f"mycel: {text}", file=sys.stderr, flush=True)
