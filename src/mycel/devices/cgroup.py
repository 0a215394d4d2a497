"""The limits that the control groups of a process set, version 2 and version 1.

A container or a service manager may allow far less than the machine has; a worker that
believed the machine would be killed for it. A limit may stand at any level above the process,
and the lowest counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
MEMBERSHIP: Final = Path("/proc/self/cgroup")
NO_LIMIT: Final = 1 << 60
"""Version 1 writes "none" as a number close to 2^63."""


class Limits:
    """`cpu_cores` and `memory` are None where nothing limits them."""

    def __init__(self, cpu_cores: float | None, memory: int | None) -> None:
        self.cpu_cores = cpu_cores
        self.memory = memory


def limits(root: Path = ROOT, membership: Path = MEMBERSHIP) -> Limits:
    cores: list[float] = []
    memory: list[int] = []
    for controllers, path in groups(membership):
        if not controllers:  # version 2: all controllers in one tree
            for folder in upwards(root, path):
                cores += _cores_v2(folder / "cpu.max")
                memory += _number(folder / "memory.max")
        for controller in controllers:
            for folder in upwards(root / controller, path):
                if controller == "cpu":
                    cores += _cores_v1(folder)
                elif controller == "memory":
                    memory += _number(folder / "memory.limit_in_bytes")
    return Limits(min(cores, default=None), min(memory, default=None))


def groups(membership: Path) -> Iterator[tuple[list[str], str]]:
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        controllers, found, path = rest.partition(":")
        if found:
            yield [name for name in controllers.split(",") if name], path


def upwards(root: Path, path: str) -> Iterator[Path]:
    """The group's own folder and all above it. Inside a container its path may not exist:
    then the root is the group."""
    folder = root / path.lstrip("/")
    if ".." in folder.parts or not folder.is_dir():
        folder = root
    while True:
        yield folder
        if folder == root:
            return
        folder = folder.parent


def _cores_v2(path: Path) -> list[float]:
    """ "max 100000" or "150000 100000"."""
    quota, _, period = _read(path).strip().partition(" ")
    return [int(quota) / int(period)] if quota.isdigit() and period.isdigit() else []


def _cores_v1(folder: Path) -> list[float]:
    quota = _number(folder / "cpu.cfs_quota_us")
    period = _number(folder / "cpu.cfs_period_us")
    return [quota[0] / period[0]] if quota and period else []


def _number(path: Path) -> list[int]:
    text = _read(path).strip()
    return [int(text)] if text.isdigit() and 0 < int(text) < NO_LIMIT else []


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
