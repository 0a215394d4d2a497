"""How results leave a warm interpreter: together, and safe from its own crash."""

from __future__ import annotations

import _thread
import os

from .interpreter_records import FRAME, MEMORY_BYTES, RESULTS, RESULTS_OFFSET

TYPE_CHECKING = False
"""As in `typing`, whose import a small program is spared."""
if TYPE_CHECKING:
    import mmap


class Results:
    """Sends results in batches. One waits at most until

    * the batch is through, 2 ms have passed since the last flush, or 64 KiB are full (the
      main thread, between two calls), or
    * the next call has run for `long_seconds` (the watcher).
    """

    def __init__(self, socket: int, memory: mmap.mmap) -> None:
        self._socket = socket
        self._memory = memory
        self._lock = _thread.allocate_lock()
        self._used = 0
        self.flushed_at = 0.0

    def add(self, record: bytes) -> None:
        with self._lock:
            end = RESULTS_OFFSET + self._used + len(record)
            if end > MEMORY_BYTES:
                self._flush()
                if len(record) > MEMORY_BYTES - RESULTS_OFFSET:
                    self._write(RESULTS, record)
                    return
                end = RESULTS_OFFSET + len(record)
            self._memory[end - len(record) : end] = record
            self._used += len(record)
            self._memory[4:8] = self._used.to_bytes(4, "little")

    def flush(self, now: float) -> None:
        self.flushed_at = now
        with self._lock:
            self._flush()

    def send(self, kind: int, payload: bytes) -> None:
        """Never overtakes a result."""
        with self._lock:
            self._flush()
            self._write(kind, payload)

    def _flush(self) -> None:
        if self._used:
            end = RESULTS_OFFSET + self._used
            self._write(RESULTS, self._memory[RESULTS_OFFSET:end])
            self._used = 0
            self._memory[4:8] = b"\0\0\0\0"

    def _write(self, kind: int, payload: bytes) -> None:
        data = FRAME.pack(len(payload), kind) + payload
        sent = os.write(self._socket, data)
        while sent < len(data):
            sent += os.write(self._socket, memoryview(data)[sent:])
