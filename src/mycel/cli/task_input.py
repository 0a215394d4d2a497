"""The standard input of `mycel run`, on its way to the task."""

from __future__ import annotations

import array
import fcntl
import os
import select
import shutil
import stat
import sys
import termios
from pathlib import Path
from typing import Any, Final

from mycel.console.errors import UsageError

NAME: Final = ".mycel-stdin"
"""Of the file in the task's folder that is its standard input."""
_WITH_INPUT: Final = f'exec "$0" "$@" <{NAME}'


def refuse_unread() -> None:
    """What waits there would be lost without a word. A pipe that says nothing may belong to
    whoever has started us, and is left alone."""
    try:
        waiting = _has_data(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):  # there is none, or it is closed
        return
    if waiting:
        raise UsageError(
            "there is standard input, which the task would not get: send it along with --stdin, or "
            "say </dev/null"
        )


def _has_data(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.lseek(descriptor, 0, os.SEEK_CUR) < os.fstat(descriptor).st_size
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(0):
        return False
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0] > 0


def keep(folder: Path) -> Path:
    """All of it, in a file there."""
    path = folder / NAME
    with path.open("xb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def with_input(body: dict[str, Any]) -> dict[str, Any]:
    """The task, reading that file. The program takes the shell's place, so that signals and the
    exit code are its own."""
    if body.get("image") is not None:
        raise UsageError("--stdin is for commands: a container may have no shell; use --input")
    return {**body, "command": ["/bin/sh", "-c", _WITH_INPUT, *body["command"]]}
