"""What a build takes of the disk: measured while it runs, with allocated blocks.

A wheel of 3 MB may unpack to 6 GB, in one file or in a million. Nobody else counts that: a quota of
the file system needs a user for each build, and rlimits know single files only.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from mycel.core.model.resources import size

LOOK_SECONDS_MIN: Final = 0.05
LOOK_SHARE: Final = 4.0
"""Looking takes at most one part in so many of the time."""
ENTRIES_MAX: Final = 500_000
"""Files and folders of one build, what it adds to its cache included."""
_BLOCK_BYTES: Final = 512


class OverQuota(Exception):
    """The message says which quota."""


class Usage(msgspec.Struct, frozen=True):
    bytes_count: int = 0
    entries_count: int = 0


class Quota(msgspec.Struct, frozen=True):
    bytes_max: int
    folders: tuple[Path, ...]
    """Everything that the build can write on disk."""
    before: Usage = Usage()
    """What was there already."""

    def check(self) -> Usage:
        """What the build has added. Raises `OverQuota`."""
        bytes_max = self.before.bytes_count + self.bytes_max
        found = measured(self.folders, bytes_max)
        if found.bytes_count > bytes_max:
            raise OverQuota(
                f"it takes more than {size(self.bytes_max)} of disk once unpacked; the worker's "
                "owner can raise [worker.environments] max_environment_size, or max_size"
            )
        entries_count = found.entries_count - self.before.entries_count
        if entries_count > ENTRIES_MAX:
            raise OverQuota(f"it has more than {ENTRIES_MAX:,} files and folders once unpacked")
        return Usage(found.bytes_count - self.before.bytes_count, entries_count)

    async def watch(self) -> None:
        """Ends only by raising `OverQuota`."""
        while True:
            began = time.monotonic()
            await asyncio.to_thread(self.check)
            taken = time.monotonic() - began
            await asyncio.sleep(max(LOOK_SECONDS_MIN, LOOK_SHARE * taken))


def measured(folders: Sequence[Path], bytes_enough: int | None = None) -> Usage:
    """Raises `OverQuota` for a place where nobody could count."""
    bytes_count = entries_count = 0
    linked: set[tuple[int, int]] = set()
    waiting = [str(folder) for folder in folders]
    while waiting:
        if bytes_enough is not None and bytes_count > bytes_enough:
            break
        if entries_count > 2 * ENTRIES_MAX:
            break
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    status = entry.stat(follow_symlinks=False)
                    entries_count += 1
                    if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                        if (status.st_dev, status.st_ino) in linked:
                            continue
                        linked.add((status.st_dev, status.st_ino))
                    bytes_count += status.st_blocks * _BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.EACCES):
                raise OverQuota(
                    "it has folders that nest too deep, or that cannot be looked into"
                ) from error
            # Else it has just been removed, which is a build's right.
    return Usage(bytes_count, entries_count)
