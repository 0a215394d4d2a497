"""What tasks see of /etc: a folder of copies, made when a worker starts.

A mount for each name would say the same, and cost a task's start a fifth of its time. So what
changes there is seen by tasks after the worker's next start. Only what everybody on the machine
may read is copied.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from .bubblewrap import ETC, SYSTEM, is_within

RESOLVER: Final = "resolv.conf"
"""Empty here: for tasks with the network the machine's own is put over it."""
READABLE_BY_ALL: Final = 0o004


def make_etc_folder(folder: Path, source: Path = Path("/etc")) -> None:
    """Anew, whatever was there. Raises OSError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    for name in ETC:
        one = source / name
        real = str(one.resolve())
        # A link to where tasks see nothing is no use to them.
        shows = one.is_symlink() and any(is_within(real, path) for path in SYSTEM)
        _copy(one if shows else Path(real), folder / name)
    (folder / RESOLVER).touch()


def _copy(source: Path, target: Path) -> None:
    try:
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif not source.stat().st_mode & READABLE_BY_ALL:
            return
        elif source.is_dir():
            target.mkdir()
            target.chmod(0o755)
            for one in source.iterdir():
                _copy(one, target / one.name)
        elif source.is_file():
            shutil.copyfile(source, target)
            target.chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)
    except OSError:  # what cannot be read, or has just gone, is left out, and not cut short
        if target.is_file():
            target.unlink()
