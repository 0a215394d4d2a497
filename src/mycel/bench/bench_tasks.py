"""What the benchmark's tasks do: next to nothing, and something that can be checked."""

from __future__ import annotations

import os
import time


def noop(number: int) -> list[int]:
    """A value that only this argument gives, and the interpreter that made it."""
    return [expected(number), os.getpid()]


def expected(number: int) -> int:
    return 3 * number + 1


def hold(seconds: float) -> int:
    """Keeps its slot, so that a second task has to go elsewhere."""
    time.sleep(seconds)
    return os.getpid()
