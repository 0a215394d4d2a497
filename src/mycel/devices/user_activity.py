"""How long ago somebody last used this machine by hand.

| where            | how                                                              |
|------------------|------------------------------------------------------------------|
| any terminal     | when its device was last read                                    |
| Linux desktops   | `loginctl`: what each graphical session says of itself           |
| Linux consoles   | when an input device was last read                               |
| macOS            | `ioreg`: HIDIdleTime                                             |

Each may be absent; a machine that shows no sign of anybody has been left for ever.
"""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil

COMMAND_SECONDS: Final = 10.0
_GRAPHICAL: Final = ("x11", "wayland", "mir")


def idle_seconds(
    wall: Callable[[], float] = time.time,
    run: Callable[[list[str]], str] | None = None,
    input_devices: Path = Path("/dev/input"),
) -> float:
    run = run or _run
    now = wall()
    signs = [*_terminals(now), *_sessions(now, run), *_inputs(now, input_devices)]
    if sys.platform == "darwin":
        signs += _macos(run)
    return max(0.0, min(signs, default=math.inf))


def _terminals(now: float) -> Iterator[float]:
    for user in psutil.users():
        if user.terminal:
            with contextlib.suppress(OSError):
                yield now - Path("/dev", user.terminal).stat().st_atime


def _inputs(now: float, folder: Path) -> Iterator[float]:
    for device in folder.glob("event*"):
        with contextlib.suppress(OSError):
            yield now - device.stat().st_atime


def _sessions(now: float, run: Callable[[list[str]], str]) -> Iterator[float]:
    names = [line.split()[0] for line in run(["loginctl", "--no-legend"]).splitlines() if line]
    for name in names:
        told = run(["loginctl", "show-session", name])
        fields = dict(line.partition("=")[::2] for line in told.splitlines())
        if fields.get("Type") not in _GRAPHICAL or fields.get("Active") != "yes":
            continue
        if fields.get("IdleHint") != "yes":
            yield 0.0
        else:
            since = fields.get("IdleSinceHint", "0")
            yield now - int(since) / 1e6 if since.isdigit() else 0.0


def _macos(run: Callable[[list[str]], str]) -> Iterator[float]:
    found = re.search(r'"HIDIdleTime" = (\d+)', run(["ioreg", "-c", "IOHIDSystem"]))
    if found is not None:
        yield int(found[1]) / 1e9


def _run(command: list[str]) -> str:
    """What it prints; nothing, if it is not there or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
