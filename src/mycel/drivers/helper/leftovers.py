"""What is left when even the spawn helper was killed: found, and cleared away.

A task's processes, and theirs, carry `MYCEL_WORKDIR` in their environment: that tells whose
they are, whatever else they have changed about themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from mycel.blobs.folder_removal import remove_tree

ROUNDS_MAX: Final = 10
"""Who forks faster than we kill needs more than one."""


def remove_leftovers(root: Path, prefix: str) -> None:
    """Clears a driver's folder of what an earlier worker could not."""
    leftovers = list(root.glob(f"{prefix}*"))
    if leftovers:
        kill_abandoned(root)
    for leftover in leftovers:
        remove_tree(leftover)


def kill_abandoned(root: Path) -> None:
    """Kills every process whose working folder, as it was told, is in `root`."""
    mark = b"MYCEL_WORKDIR=" + os.fsencode(root) + b"/"
    for _ in range(ROUNDS_MAX):
        abandoned = [
            process_id for process_id in _processes() if carries(process_id, mark, is_prefix=True)
        ]
        if not abandoned:
            return
        for process_id in abandoned:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process_id, signal.SIGKILL)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def carries(process_id: int, mark: bytes, *, is_prefix: bool = False) -> bool:
    try:
        environment = Path(f"/proc/{process_id}/environ").read_bytes()
    except OSError:  # ended meanwhile, or another user's
        return False
    entries = environment.split(b"\0")
    return any(entry.startswith(mark) for entry in entries) if is_prefix else mark in entries
