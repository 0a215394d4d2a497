"""Capturing output: the first and the last part of it.

The interpreter imports this too: the standard library only, and little of it.
"""

from __future__ import annotations

import _thread
import io
import os
import sys

from .live_output import LiveOutput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class HeadAndTail:
    """Keeps the first and the last half of a stream, and says how much is missing between."""

    NOTE_BYTES = 64

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._tail_max = max(self._half - self.NOTE_BYTES, 0)
        self.head = bytearray()
        self._tail = bytearray()
        self._cut = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        room = self._half - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._half:
                self._trim()

    def live(self) -> LiveOutput:
        """For telling what was written, and what will be: `LiveOutput.write` is the caller's."""
        if self._tail:
            return LiveOutput(b"", len(self.head) + self._cut + len(self._tail))
        return LiveOutput(self.head, len(self.head))

    def take(self) -> bytes:
        """All that was kept; afterwards it is empty."""
        head, self.head = self.head, bytearray()
        if not self._tail:
            return bytes(head)
        if self._cut or len(self._tail) > self._half:
            self._trim()
        note = b"\n... %d bytes left out ...\n" % self._cut if self._cut else b""
        kept = bytes(head) + note + self._tail
        self._tail = bytearray()
        self._cut = 0
        return kept

    def _trim(self) -> None:
        excess = len(self._tail) - self._tail_max
        if excess > 0:
            self._cut += excess
            del self._tail[:excess]


class _Captured(io.RawIOBase):
    """What lies under `sys.stdout`: stays in place from task to task, emptied only if used."""

    def __init__(self, limit: int) -> None:
        self.kept = HeadAndTail(limit)
        self.live: LiveOutput | None = None
        self.lock = _thread.allocate_lock()

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        written = bytes(data)
        with self.lock:  # or another thread could go live between the two
            self.kept.write(written)
            if self.live is not None:
                self.live.write(written)
        return len(written)


class CapturedOutput:
    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._raw = _Captured(limit)
        self._install()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """The other thread, which may have had the lock, is not there."""
        self._raw.lock = _thread.allocate_lock()
        self._raw.live = None

    def take(self) -> bytes:
        stream = self._stream
        if getattr(sys, self._name) is not stream or stream.closed:
            self._install()
        raw = self._raw
        raw.live = None
        return raw.kept.take() if raw.kept.head else b""

    # For another thread, while a task runs

    def go_live(self) -> None:
        """From now on what is written can be told before its end."""
        raw = self._raw
        with raw.lock:
            raw.live = raw.kept.live()

    def take_live(self) -> tuple[int, bytes]:
        raw = self._raw
        with raw.lock:
            return (0, b"") if raw.live is None else raw.live.take()

    def _install(self) -> None:
        if self._raw.closed:
            kept = self._raw.kept
            self._raw = _Captured(0)
            self._raw.kept = kept
        # write_through: nothing of a task may linger in a buffer and reach the next one.
        self._stream = io.TextIOWrapper(
            self._raw,  # type: ignore[type-var]  # a raw stream is enough when writing through
            encoding="utf-8",
            errors="backslashreplace",
            write_through=True,
        )
        setattr(sys, self._name, self._stream)
