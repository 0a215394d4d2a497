"""What the tasks do, on whichever machine they run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

MODULE: Final = __name__


def mark(folder: str, number: int, seconds: float) -> int:
    """Each execution leaves a file of its own, before it does anything."""
    Path(folder, f"{number}.{os.environ['MYCEL_ATTEMPT']}.{os.getpid()}").touch()
    time.sleep(seconds)
    return number


def marks(folder: Path) -> list[int]:
    """The numbers of all executions so far."""
    return sorted(int(path.name.partition(".")[0]) for path in folder.iterdir())
