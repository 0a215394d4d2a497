"""Output that is told while its task runs: in stretches, at intervals, and not too much.

The interpreter imports this too: the standard library only, and none of it.
"""

from __future__ import annotations

LIVE_SECONDS = 0.1
"""So often what was written is told."""
LIVE_BYTES_MAX = 64 << 10
"""So much of one stream each time; the rest is left out, and is there when the task has ended."""


class LiveOutput:
    """What has been written to one stream and not been told yet. Its stretches never overlap;
    where one does not begin at the end of the one before, something was left out."""

    def __init__(self, written: bytes | bytearray, total: int) -> None:
        """`total` bytes were written so far; those that are left of them are `written`."""
        self._pending = bytearray(written[:LIVE_BYTES_MAX])
        self._start = total - len(written)
        self._end = total

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._start + len(self._pending) == self._end:
            self._pending += data[: LIVE_BYTES_MAX - len(self._pending)]
        self._end += len(data)

    def take(self) -> tuple[int, bytes]:
        """The offset at which the next stretch begins, and what it is."""
        start, stretch = self._start, bytes(self._pending)
        self._pending.clear()
        self._start = self._end
        return start, stretch
