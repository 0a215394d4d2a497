"""Where a worker may make control groups for its tasks: below its own, and nowhere else.

Whoever has limited the worker has limited its tasks with it. Version 2 lets processes be in
leaves only: a worker that is alone in its group (systemd with `Delegate=yes`, a container) moves
itself into one; one that shares its group with strangers makes none.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from mycel.devices.cgroup import MEMBERSHIP, ROOT, groups, upwards

from .cgroups import members_of, read, remove_places, set_memory
from .run_confinement import MEMORY_FLOOR_BYTES, CgroupPlan

CONTROLLERS: Final = ("memory", "pids", "cpu")
NODE: Final = "mycel-node"


class NoCgroups(Exception):
    """This worker may make no control groups; says why."""


def make_places(
    mark: str,
    memory: int,
    own: tuple[int, ...],
    root: Path = ROOT,
    membership: Path = MEMBERSHIP,
) -> CgroupPlan:
    """`memory`: what all tasks together may have; `own`: the processes of this node."""
    found = list(groups(membership))
    places: dict[str, str] = {}
    version = 1
    for controllers, path in found:
        for controller in controllers:
            # Who has real-time priority (`chrt`) may be in no group that has no time for it.
            if controller in CONTROLLERS and not (controller == "cpu" and _is_real_time()):
                here = next(upwards(root / controller, path))
                places[controller] = str(here / f"mycel-{mark}")
    if not places:
        version, places = 2, {"": str(_unified_place(found, root, mark, own))}
    _clear(places)
    try:
        for place in places.values():
            Path(place).mkdir(exist_ok=True)
        _limit_all(version, places, max(memory, MEMORY_FLOOR_BYTES) if memory else 0)
    except OSError as error:
        remove_places(places)
        raise NoCgroups(f"{error.strerror}: {error.filename or 'control groups'}") from error
    return CgroupPlan(version, places)


def _is_real_time() -> bool:
    return os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)


def _unified_place(
    found: list[tuple[list[str], str]], root: Path, mark: str, own: tuple[int, ...]
) -> Path:
    path = next((path for controllers, path in found if not controllers), None)
    if path is None:
        raise NoCgroups("this process is in none")
    home = next(upwards(root, path))
    if home.name == NODE:
        home = home.parent
    there = set(read(home / "cgroup.controllers").split())
    missing = [name for name in ("memory", "pids") if name not in there]
    if missing:
        raise NoCgroups(f"the controllers {', '.join(missing)} are not given to {home}")
    wanted = " ".join(f"+{name}" for name in CONTROLLERS if name in there)
    try:
        try:
            (home / "cgroup.subtree_control").write_text(wanted, encoding="ascii")
        except OSError:
            strangers = members_of(home) - set(own)
            if strangers:
                raise NoCgroups(
                    f"{home} has other processes: start the worker by systemd with Delegate=yes, "
                    "or in a container"
                ) from None
            (home / NODE).mkdir(exist_ok=True)
            for process_id in own:
                (home / NODE / "cgroup.procs").write_text(str(process_id), encoding="ascii")
            (home / "cgroup.subtree_control").write_text(wanted, encoding="ascii")
        place = home / f"mycel-{mark}"
        place.mkdir(exist_ok=True)
        (place / "cgroup.subtree_control").write_text(wanted, encoding="ascii")
    except OSError as error:
        raise NoCgroups(f"{error.strerror}: {error.filename}") from error
    return place


def _limit_all(version: int, places: dict[str, str], memory: int) -> None:
    if version == 2:
        (Path(places[""]) / "memory.max").write_text(str(memory or "max"), encoding="ascii")
    elif "memory" in places:
        set_memory(Path(places["memory"]), memory)


def _clear(places: dict[str, str]) -> None:
    """What an earlier worker left there was its tasks'."""
    for place in places.values():
        for folder in Path(place).glob("*/"):
            for process_id in members_of(folder) - {os.getpid()}:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process_id, signal.SIGKILL)
            with contextlib.suppress(OSError):
                folder.rmdir()
