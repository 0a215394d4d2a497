"""Landlock: what the kernel lets a task do with files, whatever it sees of them.

Behind bubblewrap it is a second wall: should a mount show more than it was meant to, the task
still reads and starts only what it was given, and writes in its own places alone. Where there is
no bubblewrap it is the first. Which rights and scopes a kernel knows goes by its version of the
interface, and what it does not know is left out; version 1 counts as none, because it forbids
every move from folder to folder.

    2   moves between folders      5   device requests (ioctl)
    3   truncation                 6   signals and abstract sockets out of the sandbox

The rules are words for the launcher, which opens each path where the task will see it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import Final

from .bubblewrap import ETC, PROCESSORS, SYSTEM, SYSTEM_LINKS, is_within
from .run_confinement import LandlockRules, RunConfinement

VERSION_MIN: Final = 2
_CREATE_RULESET: Final = 444
_ASK_VERSION: Final = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_BASIC: Final = (1 << 13) - 1
"""Everything of the first version: also to make and to remove entries of each kind."""
_SINCE: Final = ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEVICE))
_SCOPES_SINCE: Final = 6
_SCOPES: Final = 0b11
"""Abstract sockets, signals."""

READ: Final = EXECUTE | READ_FILE | READ_DIR
DEVICE: Final = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEVICE
DEVICES: Final = tuple(f"/dev/{name}" for name in ("full", "null", "random", "urandom", "zero"))
TERMINALS: Final = ("/dev/ptmx", "/dev/pts", "/dev/tty")
"""Its own in the sandbox; without, those of the machine's users are among them."""
PROCESSES: Final = "/proc"
MACHINE: Final = tuple(
    f"/proc/{name}"
    for name in (
        "cpuinfo",
        "devices",
        "driver",
        "filesystems",
        "loadavg",
        "meminfo",
        "modules",
        "stat",
        "sys/fs/pipe-max-size",
        "sys/kernel/cap_last_cap",
        "sys/kernel/osrelease",
        "sys/kernel/pid_max",
        "sys/kernel/random",
        "sys/vm",
        "uptime",
        "version",
    )
)
"""What programs ask about the machine, where /proc has everybody's processes…"""
ITSELF: Final = tuple(
    f"/proc/self/{name}"
    for name in (
        "auxv",
        "cgroup",
        "cmdline",
        "comm",
        "environ",
        "fd",
        "fdinfo",
        "limits",
        "maps",
        "mountinfo",
        "mounts",
        "oom_score",
        "oom_score_adj",
        "smaps",
        "smaps_rollup",
        "stat",
        "statm",
        "status",
    )
)
"""…and about the task's first process. Not its `net` and `task`: there is the machine's network."""
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108
TEMPORARY: Final = "/tmp"  # noqa: S108


def version() -> int:
    """Which one this kernel has; 0 is none that we use."""
    if sys.platform != "linux":
        return 0
    found = int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _ASK_VERSION))
    return found if found >= VERSION_MIN else 0


def scopes_signals(kernel: int) -> bool:
    return kernel >= _SCOPES_SINCE


def rules(
    kernel: int,
    readable: tuple[str, ...],
    *,
    wrapped: bool,
    hidden: str = "",
    listed: tuple[str, ...] = (),
) -> LandlockRules | None:
    """What all tasks have in common; nothing for a kernel without. `wrapped`: in a sandbox, where
    processes, terminals and the places that hold temporary files are the task's own. Without one,
    `hidden` is kept out of every readable path, and of the `listed` folders only names are told."""
    if kernel < VERSION_MIN:
        return None
    files = _BASIC
    for since, right in _SINCE:
        files |= right if kernel >= since else 0
    scopes = _SCOPES if scopes_signals(kernel) else 0
    words = ["landlock", str(files), str(scopes)]
    device = DEVICE & files
    for path in DEVICES:
        words += path_words(device, path)
    etc = (f"/etc/{name}" for name in (*ETC, "resolv.conf"))
    shown = (*SYSTEM, *SYSTEM_LINKS, *etc, *PROCESSORS, *readable)
    if wrapped:
        for path in TERMINALS:
            words += path_words(device, path)
        words += path_words(files, SHARED_MEMORY)
        # What is there has been put there: its names may be known.
        words += path_words(READ_DIR, "/") + path_words(files, TEMPORARY)
        shown = (*shown, PROCESSES)
    else:
        for path in listed:
            words += path_words(READ_DIR, path)
        shown = tuple(one for path in (*shown, *MACHINE) for one in without(path, hidden))
        for path in ITSELF:  # of the process that opens it: the task to be
            words += path_words(READ, path)
    for path in shown:
        if Path(path).exists():
            words += path_words(READ, path)
    return LandlockRules(tuple(words), read=READ, write=files, device=device)


def rule_words(common: LandlockRules, confinement: RunConfinement, folder: str) -> list[str]:
    """All rules of one run."""
    words = [*common.words, *path_words(common.write, folder)]
    for path in confinement.readable:
        words += path_words(common.read, path)
    for path in confinement.writable:
        words += path_words(common.write, path)
    for path in confinement.devices:
        words += path_words(common.device, path)
    return words


def path_words(rights: int, path: str) -> list[str]:
    return ["path", str(rights), path]


def without(path: str, hidden: str) -> list[str]:
    """Paths that together show `path`, but not what is hidden in it: a rule cannot be taken back
    for a part of what it allows."""
    real = os.path.realpath(path)
    if not hidden or not is_within(hidden, real):
        return [path]
    found: list[str] = []
    if real != hidden:
        with contextlib.suppress(OSError), os.scandir(real) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                leads_there = is_within(hidden, os.path.realpath(entry.path))
                if not (leads_there and entry.is_symlink()):
                    found += without(entry.path, hidden)
    return found
