"""What holds one run, and how the worker tells its spawn helper.

A run without a `RunConfinement` is started as it is: drivers that confine by other means, such as
containers, have none.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from mycel.core.model.resources import Pairs, size

MEMORY_FLOOR_BYTES: Final = 32 << 20
"""No limit is set below: an interpreter alone takes half of it."""


class Limits(msgspec.Struct, frozen=True, array_like=True):
    """0 is no limit."""

    memory: int = 0
    cores: float = 0.0
    processes: int = 0
    file_size: int = 0
    disk: int = 0
    """Bytes in its working folder."""


class RunConfinement(msgspec.Struct, frozen=True, array_like=True):
    """Equal holds can share an interpreter."""

    network: bool = False
    limits: Limits = Limits()
    cores: tuple[int, ...] = ()
    """The processor cores that it runs on; empty is any."""
    devices: tuple[str, ...] = ()
    """Device files that it sees beside the harmless ones."""
    environment: Pairs = ()
    """Which devices are its own, for the libraries that ask."""
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    socket: str = ""
    """Where it reports: the one thing of the worker's own that it sees."""


class CgroupPlan(msgspec.Struct, frozen=True, array_like=True):
    """Where control groups for tasks are made, by controller; version 2 has one place for all."""

    version: int
    places: dict[str, str]


class LandlockRules(msgspec.Struct, frozen=True, array_like=True):
    """Of Landlock: words for the launcher that all tasks have in common, and the rights that
    their own paths get."""

    words: tuple[str, ...]
    read: int
    write: int
    device: int


class SandboxPlan(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Once, before the first process: how this worker holds its tasks."""

    wrap: tuple[str, ...] = ()
    """What makes the sandbox, and what every task sees of the machine; empty is no sandbox."""
    offline: tuple[str, ...] = ()
    """What is added for a task without the network…"""
    online: tuple[str, ...] = ()
    """…and with it."""
    drop: tuple[str, ...] = ()
    """How root is given up inside the sandbox; empty where we are not root."""
    user: int = -1
    """Whom working folders are given to; -1 is nobody else."""
    filter: bytes = b""
    visible: tuple[str, ...] = ()
    """What of the machine is there inside."""
    cgroups: CgroupPlan | None = None
    launcher: bytes = b""
    """The program that takes the steps between the helper and a task; empty, nothing is held."""
    rules: LandlockRules | None = None
    online_filter: bytes = b""
    """For a task with the network, where that needs another filter."""
    own: bool = False
    """The launcher makes the sandbox: there is no bubblewrap, and `wrap` has its words alone."""

    @property
    def is_kept(self) -> bool:
        """Landlock and seccomp hold tasks, and nothing else does: they share the machine's
        processes, network and sockets, which the filter refuses."""
        return not self.wrap and self.rules is not None

    @property
    def parts_network(self) -> bool:
        """Whether tasks without the network have a network namespace of their own."""
        return bool(self.wrap) and bool(self.offline)

    @property
    def keeps_files(self) -> bool:
        """Whether tasks have but some of the machine's files."""
        return bool(self.wrap) or self.rules is not None


def give(folder: str, owner: int) -> None:
    """Makes a working folder, with all that is in it, the task's own; only what is linked
    elsewhere stays ours, so that it cannot be written to. Only for folders that no task has
    yet: there are no links of anybody else's in it."""
    if owner >= 0:
        group = os.getegid()
        for path, _, names in os.walk(folder):
            os.chown(path, owner, group, follow_symlinks=False)
            for name in names:
                file = os.lstat(f"{path}/{name}")
                if stat.S_ISREG(file.st_mode) and file.st_nlink == 1:
                    os.chown(f"{path}/{name}", owner, group, follow_symlinks=False)
        # Root enters it when it has no rights any more but those of its group.
        Path(folder).chmod(0o710)


def memory_error(limits: Limits) -> str:
    if limits.memory:
        return (
            f"MemoryLimitExceeded: used more than {size(limits.memory)} of memory, its limit; "
            "ask for more with requirements.min_memory"
        )
    return (
        "MemoryLimitExceeded: the tasks of this worker used more memory than it offers, and this "
        "one was the largest; say with requirements.min_memory how much it needs"
    )


def file_size_error(limits: Limits) -> str:
    return f"FileSizeLimitExceeded: wrote a file of more than {size(limits.file_size)}, its limit"


def disk_error(limits: Limits) -> str:
    return (
        f"DiskLimitExceeded: put more than {size(limits.disk)} into its working folder, its "
        "limit; ask for more with requirements.disk"
    )
