"""Control groups for tasks, version 2 and version 1, as the spawn helper uses them.

    <where the worker is>/mycel-<its mark>/lane-3, interpreter-7, …

Each lane and each interpreter has one: what runs in a lane runs one after another, so that the
group is made once. A process joins by writing itself into the group, in the launcher, before
anything else is started: nobody can be faster. The group above them all has the limits of the
worker as a whole.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

from .run_confinement import MEMORY_FLOOR_BYTES, CgroupPlan, Limits

PERIOD_MICROSECONDS: Final = 100_000
_QUOTA_MICROSECONDS_MIN: Final = 1_000
"""The kernel refuses less: a hundredth of a core is the smallest share that it can hold."""
KILL_SECONDS: Final = 2.0
_TAKEN_FIRST: Final = ("score", "500")
"""The kernel, where it runs out of memory, is to take a task and not the node."""


class Cgroup:
    """One task's, or one interpreter's, at a time."""

    def __init__(self, version: int, folders: dict[str, Path], limits: Limits) -> None:
        self._version = version
        self.folders = folders
        self._limits = limits
        self._set = Limits()
        self._kills_before = 0
        self.words: tuple[str, ...] = ()
        """For the launcher."""

    def prepare(self, limits: Limits) -> None:
        if limits != self._set or not self.words:
            self._limit(limits)
            self._set = limits
            joined = [str(folder / "cgroup.procs") for folder in self.folders.values()]
            self.words = (*(word for path in joined for word in ("join", path)), *_TAKEN_FIRST)
        self._kills_before = self._kills()

    def was_out_of_memory(self) -> bool:
        """Whether the kernel has ended something in it since it was prepared."""
        return self._kills() > self._kills_before

    def kill(self) -> None:
        """Everything in it, whatever session or process group it has moved to."""
        deadline = time.monotonic() + KILL_SECONDS
        while members := self.members():
            for process_id in members:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process_id, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                for process_id in members:
                    os.waitpid(process_id, os.WNOHANG)
            if time.monotonic() > deadline:
                return
            time.sleep(0.001)

    def members(self) -> set[int]:
        found: set[int] = set()
        for folder in self.folders.values():
            found |= members_of(folder)
        return found

    def remove(self) -> None:
        for folder in self.folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _limit(self, limits: Limits) -> None:
        memory = max(limits.memory, MEMORY_FLOOR_BYTES) if limits.memory else 0
        if self._version == 2:
            folder = self.folders[""]
            _write(folder / "memory.max", str(memory) if memory else "max")
            _write(folder / "memory.swap.max", "0" if memory else "max")
            _write(folder / "memory.oom.group", "1")
            _write(folder / "pids.max", str(limits.processes) if limits.processes else "max")
            quota = str(_quota(limits.cores)) if limits.cores else "max"
            _write(folder / "cpu.max", f"{quota} {PERIOD_MICROSECONDS}")
            return
        if "memory" in self.folders:
            set_memory(self.folders["memory"], memory)
        if "pids" in self.folders:
            processes = str(limits.processes) if limits.processes else "max"
            _write(self.folders["pids"] / "pids.max", processes)
        if "cpu" in self.folders:
            quota = str(_quota(limits.cores)) if limits.cores else "-1"
            _write(self.folders["cpu"] / "cpu.cfs_period_us", str(PERIOD_MICROSECONDS))
            _write(self.folders["cpu"] / "cpu.cfs_quota_us", quota)

    def _kills(self) -> int:
        if self._version == 2:
            path = self.folders[""] / "memory.events"
        elif "memory" in self.folders:
            path = self.folders["memory"] / "memory.oom_control"
        else:
            return 0
        for line in read(path).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
        return 0


class Cgroups:
    """All groups of one helper; whoever makes the plan has made the places."""

    def __init__(self, plan: CgroupPlan) -> None:
        self._plan = plan
        self._groups: dict[str, Cgroup] = {}

    def enter(self, name: str, limits: Limits) -> Cgroup:
        """Raises OSError if there can be no more groups."""
        group = self._groups.get(name)
        if group is None:
            folders = {kind: Path(place) / name for kind, place in self._plan.places.items()}
            for folder in folders.values():
                folder.mkdir(exist_ok=True)
            group = self._groups[name] = Cgroup(self._plan.version, folders, limits)
        group.prepare(limits)
        return group

    def leave(self, name: str) -> None:
        group = self._groups.pop(name, None)
        if group is not None:
            group.remove()

    def close(self) -> None:
        for name in list(self._groups):
            self._groups[name].kill()
            self.leave(name)
        remove_places(self._plan.places)


def _quota(cores: float) -> int:
    """How many microseconds of each period a task may run."""
    return max(_QUOTA_MICROSECONDS_MIN, int(cores * PERIOD_MICROSECONDS))


def remove_places(places: dict[str, str]) -> None:
    for place in places.values():
        for folder in Path(place).glob("*/"):
            with contextlib.suppress(OSError):
                folder.rmdir()
        with contextlib.suppress(OSError):
            Path(place).rmdir()


def members_of(folder: Path) -> set[int]:
    return {int(word) for word in read(folder / "cgroup.procs").split()}


def set_memory(folder: Path, memory: int) -> None:
    """Version 1: memory, and memory with swap, the lower one first when they shrink."""
    limit = str(memory) if memory else "-1"
    names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
    _write(folder / names[1], "-1")
    for name in names:
        _write(folder / name, limit)


def _write(path: Path, text: str) -> None:
    """A file that is not there is a controller that we were not given."""
    with contextlib.suppress(FileNotFoundError):
        path.write_text(text, encoding="ascii")


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
