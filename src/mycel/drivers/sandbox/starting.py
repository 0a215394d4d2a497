"""What this machine can do to hold tasks, found out once, when a worker starts.

Nothing is believed that was not tried: the very sandbox that tasks will run in is set up around
a program that does nothing, and control groups are made and limited, before either is promised.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from mycel import _native
from mycel.config.settings import Worker

from . import landlock
from .bubblewrap import ETC, OFFLINE, SYSTEM, SYSTEM_LINKS, online_words, wrap_words
from .etc_folder import make_etc_folder
from .filter import filter_program
from .group_places import NoGroups, make_places
from .holding import Confine, GroupsPlan, Hold, give
from .launching import LAUNCHER_DESCRIPTOR, Descriptors, hold_words, memory_file

SANDBOX: Final = "bubblewrap"
ETC_FOLDER: Final = "etc"
NOBODY: Final = 65534
TRIAL_SECONDS: Final = 20.0
_INSTALL: Final = (
    "install bubblewrap (apt-get install bubblewrap, dnf install bubblewrap, apk add bubblewrap), "
    'or set [worker] sandbox = "off"'
)


class NoSandbox(Exception):
    """The configuration requires a sandbox, and this machine has none."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks of this worker are held by."""

    confine: Confine
    sandbox: str
    """`bubblewrap`, or nothing."""
    walls: tuple[str, ...]
    """All that keeps a task where it belongs, Landlock with its version."""
    network: bool
    """Whether tasks that ask for the network get it."""
    limits: tuple[str, ...]
    """Which can be enforced."""
    remarks: dict[str, str]
    """What is not there, and why: for the log."""


def stand(
    settings: Worker, root: Path, hidden: Path, memory: int, own: tuple[int, ...]
) -> Standing:
    """`root` has the tasks' folders, `hidden` is the node's own folder, `own` are the processes
    of this node. Raises `NoSandbox`."""
    remarks: dict[str, str] = {}
    launcher = _native.launcher()
    confine = Confine(launcher=launcher)
    if settings.sandbox == "off":
        remarks["sandbox"] = 'switched off: [worker] sandbox = "off"'
    elif not launcher:
        remarks["sandbox"] = "there is none but on Linux, on x86-64 and arm64"
    else:
        confine = _confined(settings, root, hidden, launcher, remarks)
    if settings.sandbox == "required" and not confine.wrap:
        raise NoSandbox(remarks["sandbox"])
    plan: GroupsPlan | None = None
    try:
        if launcher:
            if not confine.keeps_files:
                _try(confine, root)  # or nobody would have: limited tasks start by it, too
            plan = make_places(_mark(root), memory, own)
    except (NoGroups, NoSandbox) as error:
        remarks["limits"] = f"by process, not by control groups: {error}"
    confine = msgspec.structs.replace(confine, groups=plan)
    return Standing(
        confine=confine,
        sandbox=SANDBOX if confine.wrap else "",
        walls=_walls(confine),
        network=settings.allow_network or not confine.wrap,
        limits=_enforced(plan),
        remarks=remarks,
    )


def _enforced(plan: GroupsPlan | None) -> tuple[str, ...]:
    if plan is None:
        by_process = ("memory",) if os.geteuid() == 0 else ("memory", "processes")
        return (*by_process, "file_size", "disk", "wall_time")
    kinds = {"memory": "memory", "cpu": "cpu", "pids": "processes"}
    there = [kinds[kind] for kind in kinds if plan.version == 2 or kind in plan.places]
    return (*there, "file_size", "disk", "wall_time")


def _mark(root: Path) -> str:
    """The same whenever this worker starts, so that it finds what it left."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:12]


def _walls(confine: Confine) -> tuple[str, ...]:
    found = {
        SANDBOX: bool(confine.wrap),
        "seccomp": bool(confine.filter),
        f"landlock {landlock.version()}": confine.rules is not None,
    }
    return tuple(name for name, is_there in found.items() if is_there)


def _confined(
    settings: Worker, root: Path, hidden: Path, launcher: bytes, remarks: dict[str, str]
) -> Confine:
    """The most that works here, each tried: both walls, bubblewrap alone, Landlock alone."""
    readable = _readable(settings.readable_paths)
    kernel = landlock.version()
    if not kernel:
        remarks["landlock"] = "this kernel has none, or too old a one (Linux 5.19 or later has it)"
    bare = Confine(
        launcher=launcher,
        filter=filter_program() or b"",
        visible=(*SYSTEM, *SYSTEM_LINKS, *(f"/etc/{name}" for name in ETC), *readable),
    )
    candidates: list[tuple[str, Confine]] = []
    try:
        wrapped = _wrapped(bare, settings, hidden, root / ETC_FOLDER, readable)
    except NoSandbox as error:
        remarks["sandbox"] = str(error)
    else:
        if kernel:
            rules = landlock.rules(kernel, readable, wrapped=True)
            candidates.append(("landlock", msgspec.structs.replace(wrapped, rules=rules)))
        candidates.append(("sandbox", wrapped))
    if kernel:
        rules = landlock.rules(kernel, readable, wrapped=False)
        candidates.append(("landlock", msgspec.structs.replace(bare, rules=rules)))
    for wall, confine in candidates:
        try:
            _try(confine, root)
        except NoSandbox as error:
            remarks[wall] = str(error)
        else:
            return confine
    return Confine(launcher=launcher)


def _wrapped(
    bare: Confine, settings: Worker, hidden: Path, etc: Path, readable: tuple[str, ...]
) -> Confine:
    program = shutil.which("bwrap")
    if program is None:
        raise NoSandbox(f"bubblewrap is not installed: {_INSTALL}")
    is_root = os.geteuid() == 0
    try:
        make_etc_folder(etc)
    except OSError as error:
        raise NoSandbox(f"a copy of what tasks see of /etc cannot be made: {error}") from error
    return msgspec.structs.replace(
        bare,
        wrap=wrap_words(
            program,
            is_root=is_root,
            readable=readable,
            hidden=str(hidden.resolve()),
            etc=str(etc.resolve()),
            temporary_bytes=int(settings.limits.temporary),
        ),
        offline=OFFLINE,
        online=online_words(),
        drop=("ids", str(NOBODY), str(NOBODY)) if is_root else (),
        user=NOBODY if is_root else -1,
    )


def _readable(configured: tuple[str, ...]) -> tuple[str, ...]:
    """The worker's own Python and Mycel, where interpreters find them, and what its owner shows.
    What lies in another of these is there already."""
    package = Path(__file__).resolve().parents[2]
    search = [Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    found = [
        Path(sys.prefix),
        Path(sys.base_prefix),
        package,
        *search,
        *(Path(path).expanduser() for path in configured),
    ]
    kept: list[Path] = []
    for path in sorted({one.resolve() for one in found}):
        covered = any(path.is_relative_to(one) for one in (*map(Path, SYSTEM), *kept))
        if path.exists() and not covered and path != Path("/"):
            kept.append(path)
    return tuple(str(path) for path in kept)


def _try(confine: Confine, root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trial-", dir=root))
        give(folder, confine.user)
        alone = "Landlock" if confine.rules is not None else "the launcher"
        kind = SANDBOX if confine.wrap else alone
        try:
            files = Descriptors(
                _held_file(stack, "mycel-launch", confine.launcher),
                _held_file(stack, "mycel-filter", confine.filter) if confine.filter else -1,
            )
            launcher = f"/proc/self/fd/{files.launcher}"
            words = hold_words(confine, Hold(), folder, launcher, (), {}, files)
            done = subprocess.run(
                [*words, "/bin/sh", "-c", "echo > trial && cat /proc/version"],
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=folder,
                timeout=TRIAL_SECONDS,
                pass_fds=tuple(one for one in (files.launcher, files.filter) if one >= 0),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoSandbox(f"{kind} does not work here: {error}") from error
    if done.returncode != 0 or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise NoSandbox(f"{kind} does not work here: {said or f'exit {done.returncode}'}")


def _held_file(stack: contextlib.ExitStack, name: str, content: bytes) -> int:
    descriptor = memory_file(name, content)
    stack.callback(os.close, descriptor)
    return descriptor


assert LAUNCHER_DESCRIPTOR > 4, "an interpreter has its socket and its memory below"
