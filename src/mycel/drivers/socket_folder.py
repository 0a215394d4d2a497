"""A short folder for sockets: a path to one may have 107 bytes at the most, and a home may be deep.

It lies where temporary files do, and is locked as long as its worker lives. Who starts later finds
the ones of workers that were killed by that, and removes them, wherever those had their homes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "mycel-sockets-"


class SocketFolder:
    def __init__(self) -> None:
        remove_abandoned()
        self.path, self._held = _made()
        self.path.chmod(0o711)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.abandon()

    def abandon(self) -> None:
        """As when its worker is killed."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def remove_abandoned() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        held = _locked(path)
        if held is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(held)


def _made() -> tuple[Path, int]:
    """Until it is locked, somebody who starts just now may take it for an abandoned one."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        held = _locked(path)
        if held is not None and os.fstat(held).st_nlink:
            return path, held
        if held is not None:
            os.close(held)


def _locked(path: Path) -> int | None:
    """None if it is somebody else's, of this user or another."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if os.fstat(held).st_uid == os.geteuid():
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return held
    os.close(held)
    return None
