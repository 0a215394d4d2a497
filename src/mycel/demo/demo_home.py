"""Where a demo's swarm lives: a home that goes with it, however it ends."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from mycel.local import local_swarm


@contextmanager
def temporary_home() -> Iterator[Path]:
    """SIGTERM ends it as Ctrl-C does; nothing interrupts the end."""
    signal.signal(signal.SIGTERM, _interrupt)
    home = Path(tempfile.mkdtemp(prefix="mycel-demo-"))
    try:
        yield home
    except KeyboardInterrupt:
        print("\ninterrupted; stopping the swarm", file=sys.stderr)
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        local_swarm.down(home)
        shutil.rmtree(home, ignore_errors=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
