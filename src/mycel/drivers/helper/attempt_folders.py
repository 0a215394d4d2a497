# ruff: noqa: PTH102, PTH103, PTH104, PTH106, PTH108, PTH116, PTH208
# pathlib costs more than the calls it wraps, here once per task
"""Removing working folders: at once what is small, in a process what is not."""

from __future__ import annotations

import os
import time
from itertools import count
from typing import Final

from mycel.drivers.python.interpreter_calls import SETTLED_NANOSECONDS

ENTRIES_AT_ONCE: Final = 100


class AttemptFolders:
    """Makes and removes folders for a single-threaded process that must not stall."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._removals: set[int] = set()
        self._settled: dict[str, tuple[int, int]] = {}
        """Folders that were empty a while after their last change; and which change that was."""

    def make(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except FileNotFoundError:
            os.makedirs(path, 0o700)
        except FileExistsError:
            self._remove_slowly(path)
            os.mkdir(path, 0o700)

    def remove(self, path: str) -> None:
        self._settled.pop(path, None)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            if not _emptied(path):
                self._remove_slowly(path)

    def is_clean(self, path: str) -> bool:
        """Whether the folder can serve again as if it were new. One that has been for a while
        is not read again before it changes."""
        try:
            status = os.stat(path)
            change = (status.st_ino, status.st_ctime_ns)
            if self._settled.get(path) == change:
                return True
            if os.listdir(path):
                return False
        except OSError:
            return False
        if time.time_ns() - status.st_ctime_ns > SETTLED_NANOSECONDS:
            self._settled[path] = change
        return True

    def reap(self) -> None:
        for process_id in list(self._removals):
            if os.waitpid(process_id, os.WNOHANG)[0]:
                self._removals.discard(process_id)

    def finish(self, seconds: float) -> None:
        """Waits for removals, but not longer."""
        deadline = time.monotonic() + seconds
        while self._removals and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.002)

    @property
    def removing(self) -> bool:
        return bool(self._removals)

    def _remove_slowly(self, path: str) -> None:
        """Out of the way at once, by its new name; gone a little later."""
        doomed = f"{path}.removed-{os.getpid()}-{next(self._numbers)}"
        try:
            os.rename(path, doomed)
        except OSError:
            doomed = path
        self._removals.add(
            os.posix_spawn("/bin/rm", ("rm", "-rf", "--", doomed), os.environ, setsid=True)
        )


def _emptied(path: str) -> bool:
    """Removes a folder of a few files; False if it is more than that."""
    try:
        with os.scandir(path) as entries:
            for number, entry in enumerate(entries):
                if number >= ENTRIES_AT_ONCE or entry.is_dir(follow_symlinks=False):
                    return False
                os.unlink(entry.path)
        os.rmdir(path)
    except OSError:
        return False
    return True
