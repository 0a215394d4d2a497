"""Limits that nobody enforces but us: what a task's folder may hold, and what all of its processes
have of memory where there are no control groups; and which limit it broke."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from .launch import Launch
from .run_confinement import disk_error, file_size_error, memory_error

LOOK_SECONDS: Final = 0.5
"""How often the folders of tasks with a limit are measured."""
MEMORY_LOOK_SECONDS: Final = 0.1
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
ENTRIES_MAX: Final = 100_000
"""A folder with more is not measured to its end: this many files are enough for any task."""


def folder_bytes(folder: str, enough: int) -> int:
    """What the files in it take of the disk, as far as that is below `enough`."""
    total = entries = 0
    waiting = [folder]
    while waiting and total <= enough and entries <= ENTRIES_MAX:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    entries += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:  # removed meanwhile
            continue
    return total


def memory_bytes(processes: list[int]) -> int:
    """What these have for themselves; what they share is counted nowhere."""
    total = 0
    for process_id in processes:
        try:
            _, resident, shared, *_ = Path(f"/proc/{process_id}/statm").read_bytes().split()
        except (OSError, ValueError):  # ended meanwhile
            continue
        total += int(resident) - int(shared)
    return total * _PAGE_BYTES


def broken_limit(
    launch: Launch | None, exit_code: int, *, over_disk: bool, over_memory: bool
) -> str:
    """Which limit a task died of, in words for its user; nothing if it was none."""
    if launch is None or exit_code == 0:
        return ""
    if over_disk:
        return disk_error(launch.limits)
    if over_memory:
        return memory_error(launch.limits)
    if launch.group is not None and launch.group.was_out_of_memory():
        return memory_error(launch.limits)
    if launch.limits.file_size and exit_code == 128 + signal.SIGXFSZ:
        return file_size_error(launch.limits)
    return ""
