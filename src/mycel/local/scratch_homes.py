"""Where a benchmark's swarms live: on a disk, for the time of the measurement."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from mycel.console.errors import CommandError
from mycel.local import local_swarm

IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOUNTS: Final = Path("/proc/self/mountinfo")


def default_folder() -> Path:
    """The user's cache folder: unlike `/tmp`, it is seldom kept in memory."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "mycel" / "bench"
    except RuntimeError:
        raise CommandError("this user has no home folder: give --folder DIR") from None


def check_disk(folder: Path) -> None:
    """Refuses memory that looks like a disk: there a commit costs nothing."""
    kind = filesystem(folder, _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
    if kind in IN_MEMORY:
        raise CommandError(
            f"{folder} is on {kind}, which is memory: commits there cost nothing and the figures "
            f"would mean nothing; give --folder a folder on a disk"
        )


def filesystem(folder: Path, mounts: str) -> str:
    """The type of the file system that `folder` is on, after a `mountinfo`."""
    place = folder.resolve()
    best, kind = -1, "unknown"
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        point = _unescaped(mount.split(" ")[4])
        # Of mounts on the same point the last one lies on top.
        if place.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), source.split(" ")[0]
    return kind


def _unescaped(path: str) -> str:
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        path = path.replace(code, character)
    return path


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A folder of our own in `folder`. Whatever happens, its swarms are stopped and it is
    removed; a signal ends the measurement as Ctrl-C does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_disk(folder)
        own = Path(tempfile.mkdtemp(prefix="quick-", dir=folder))
    except OSError as error:
        raise CommandError(f"{folder} cannot be used: {error.strerror}") from None
    before = {number: signal.signal(number, _interrupt) for number in _ENDING}
    try:
        yield own
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        try:
            for home in own.glob("*/swarm.json"):
                local_swarm.down(home.parent)
        finally:
            shutil.rmtree(own, ignore_errors=True)
            for number, handler in before.items():
                signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
