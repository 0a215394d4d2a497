"""What other packages bring: entry points of a group, by name.

`importlib.metadata` takes 2 MB and 20 ms to import, in each process of a swarm, and mostly finds
nothing. So the files that it would read are searched for the group's name first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def installed(group: str) -> dict[str, EntryPoint]:
    """Looks through all installed packages."""
    if not any(_may_have(Path(place), group.encode()) for place in sys.path):
        return {}
    from importlib.metadata import entry_points

    return {one.name: one for one in entry_points(group=group)}


def _may_have(place: Path, group: bytes) -> bool:
    if place.is_file():
        return True  # an archive: not for us to open
    try:
        files = [
            file
            for kind in ("dist", "egg")
            for file in place.glob(f"*.{kind}-info/entry_points.txt")
        ]
        return any(group in file.read_bytes() for file in files)
    except OSError:
        return True
