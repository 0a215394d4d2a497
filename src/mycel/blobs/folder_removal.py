"""Removing a folder that somebody else has filled, however deep it is and whatever its modes.

Each folder in it is first moved to the top, so that nothing nests: a tree can be deeper than a
path may be long, and `shutil.rmtree` gives up there, or runs out of stack. Links are removed, never
followed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path


def remove_tree(folder: Path, stop: threading.Event | None = None) -> None:
    """Nobody else may write there any more. What cannot be removed stays, without a word, and so
    does the rest when `stop` is set."""
    with contextlib.suppress(OSError):
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink(missing_ok=True)
            return
        os.chmod(folder, 0o700)  # noqa: PTH101 - beside the calls below
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _empty(top, stop or threading.Event())
        finally:
            os.close(top)
        folder.rmdir()


def _empty(top: int, stop: threading.Event) -> None:
    names = itertools.count()
    waiting = _parted(top, top, names, stop)
    while waiting and not stop.is_set():
        name = waiting.pop()
        with contextlib.suppress(OSError):
            here = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            try:
                waiting += _parted(here, top, names, stop)
            finally:
                os.close(here)
            os.rmdir(name, dir_fd=top)


def _parted(here: int, top: int, names: Iterator[int], stop: threading.Event) -> list[str]:
    """Unlinks the files of a folder; its folders, moved to the top, come back by their names."""
    found: list[str] = []
    with os.scandir(here) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in listed:
        if stop.is_set():
            break
        with contextlib.suppress(OSError):
            if not is_folder:
                os.unlink(name, dir_fd=here)
                continue
            # Ours, though perhaps without the rights to look into it or to move it.
            os.chmod(name, 0o700, dir_fd=here)
            if here == top:
                found.append(name)
                continue
            moved = f".removed-{os.getpid()}-{next(names)}"
            os.rename(name, moved, src_dir_fd=here, dst_dir_fd=top)
            found.append(moved)
    return found
