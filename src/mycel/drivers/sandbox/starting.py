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

from mycel.config.settings import Worker

from .bubblewrap import ETC, OFFLINE, SYSTEM, SYSTEM_LINKS, folder_words, online_words, wrap_words
from .filter import filter_program
from .group_places import NoGroups, make_places
from .holding import Confine, GroupsPlan, give
from .launching import FILTER_DESCRIPTOR

SANDBOX: Final = "bubblewrap"
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
    confine = Confine()
    if settings.sandbox == "off":
        remarks["sandbox"] = 'switched off: [worker] sandbox = "off"'
    else:
        try:
            confine = _sandbox(settings, root, hidden)
        except NoSandbox as error:
            if settings.sandbox == "required":
                raise
            remarks["sandbox"] = str(error)
    plan: GroupsPlan | None = None
    try:
        plan = make_places(_mark(root), memory, own)
    except NoGroups as error:
        remarks["limits"] = f"by process, not by control groups: {error}"
    confine = msgspec.structs.replace(confine, groups=plan)
    return Standing(
        confine=confine,
        sandbox=SANDBOX if confine.wrap else "",
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


def _sandbox(settings: Worker, root: Path, hidden: Path) -> Confine:
    if sys.platform != "linux":
        raise NoSandbox("bubblewrap needs Linux")
    program = shutil.which("bwrap")
    if program is None:
        raise NoSandbox(f"bubblewrap is not installed: {_INSTALL}")
    is_root = os.geteuid() == 0
    readable = _readable(settings.readable_paths)
    drop: tuple[str, ...] = ()
    if is_root:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise NoSandbox("the worker runs as root, and setpriv (util-linux) is not installed")
        ids = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        drop = (setpriv, *ids, "--inh-caps=-all", "--bounding-set=-all", "--")
    confine = Confine(
        wrap=wrap_words(
            program,
            is_root=is_root,
            readable=readable,
            hidden=str(hidden.resolve()),
            temporary_bytes=int(settings.limits.temporary),
        ),
        offline=OFFLINE,
        online=online_words(),
        drop=drop,
        user=NOBODY if is_root else -1,
        filter=filter_program() or b"",
        visible=(*SYSTEM, *SYSTEM_LINKS, *(f"/etc/{name}" for name in ETC), *readable),
    )
    _try(confine, root)
    return confine


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
        words = [*confine.wrap, *confine.offline, *folder_words(folder)]
        descriptors: tuple[int, ...] = ()
        if confine.filter:
            loaded = os.memfd_create("mycel-filter")
            stack.callback(os.close, loaded)
            os.write(loaded, confine.filter)
            os.lseek(loaded, 0, os.SEEK_SET)
            words += ["--seccomp", str(loaded)]
            descriptors = (loaded,)
        try:
            done = subprocess.run(
                [*words, "--", *confine.drop, "/bin/sh", "-c", "echo > trial && cat /proc/1/comm"],
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TRIAL_SECONDS,
                pass_fds=descriptors,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoSandbox(f"bubblewrap does not work here: {error}") from error
    if done.returncode != 0 or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise NoSandbox(f"bubblewrap does not work here: {said or f'exit {done.returncode}'}")


assert FILTER_DESCRIPTOR > 4, "an interpreter has its socket and its memory below"
