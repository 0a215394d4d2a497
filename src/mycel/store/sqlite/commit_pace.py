"""Which commits are so quick that the loop's own thread makes them, and when the WAL is copied.

Used by the loop's thread and by the writer's. Each fact is one number that one of them may
read a moment late: the worst of it is a commit that goes the other way.
"""

from __future__ import annotations

from typing import Final

ENTRIES_AT_ONCE_MAX: Final = 4
"""More come from many clients at once: then the loop has better things to do than to wait."""
QUICK_SECONDS: Final = 0.001
"""Where commits take longer on average, the loop does not wait for the disk."""
WEIGHT: Final = 1 / 8
"""Of the last commit in that average: one slow commit of 10 ms keeps the next few away."""
AT_ONCE_BEFORE_COPY: Final = 380
"""At four pages each this is a little less than what SQLite takes before it copies the WAL by
itself, within a commit: the writer's thread shall do it, not the loop's."""


class Pace:
    def __init__(self, quick_seconds: float = QUICK_SECONDS) -> None:
        self._quick_seconds = quick_seconds
        self._average_seconds = 0.0
        self._uncopied = False
        self._at_once = 0
        self._at_once_seen = 0

    def allows(self, entries: int) -> bool:
        return (
            entries <= ENTRIES_AT_ONCE_MAX
            and self._average_seconds < self._quick_seconds
            and self._at_once < AT_ONCE_BEFORE_COPY
        )

    def took(self, seconds: float) -> None:
        """A transaction is on disk."""
        self._average_seconds += (seconds - self._average_seconds) * WEIGHT
        self._uncopied = True

    def committed_at_once(self) -> bool:
        """True if the writer's thread should be told: it sleeps while nothing is to be copied."""
        self._at_once += 1
        return self._at_once == 1

    @property
    def copying_is_due(self) -> bool:
        return self._uncopied

    @property
    def copying_is_overdue(self) -> bool:
        return self._at_once >= AT_ONCE_BEFORE_COPY

    def is_idle(self) -> bool:
        """Whether nothing was committed at once since the last call."""
        idle = self._at_once == self._at_once_seen
        self._at_once_seen = self._at_once
        return idle

    def copied(self) -> None:
        self._uncopied = False
        self._at_once = self._at_once_seen = 0
