"""How much of its tasks' output a worker tells while they run.

What is above it is left out, which shows as a gap and is there when the task has ended: a task
that floods its output must cost neither its scheduler's memory nor the way for results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mycel.core.messages import Text

BYTES_PER_SECOND: Final = 2 << 20
BYTES_AT_ONCE: Final = 4 << 20


class Allowance:
    def __init__(self) -> None:
        self._left = float(BYTES_AT_ONCE)
        self._as_of = 0.0

    def allowed(self, texts: Iterable[Text], now: float) -> list[Text]:
        gained = (now - self._as_of) * BYTES_PER_SECOND
        self._left = min(BYTES_AT_ONCE, self._left + gained)
        self._as_of = now
        told = []
        for text in texts:
            if len(text.data) <= self._left:
                self._left -= len(text.data)
                told.append(text)
        return told
