"""What this machine can do to hold tasks, found out once, when a worker starts.

Nothing is believed that was not tried: the very sandbox that tasks will run in is set up around
a program that does nothing, and control groups are made and limited, before either is promised.

    bubblewrap        where it is installed and works
    namespaces        the same walls, made by the launcher
    Landlock alone    where the kernel refuses namespaces, and the worker is not root
    none              a worker that is root takes no tasks then

Behind the first two Landlock is a second wall, and seccomp is behind all of them.
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
from .bubblewrap import (
    ETC,
    OFFLINE,
    SYSTEM,
    SYSTEM_LINKS,
    is_within,
    links_on_the_way,
    online_words,
    wrap_words,
)
from .cgroup_paths import NoCgroups, make_places
from .etc_folder import make_etc_folder
from .launch import LAUNCHER_DESCRIPTOR, Descriptors, confinement_words, memory_file
from .run_confinement import CgroupPlan, RunConfinement, SandboxPlan, give
from .seccomp_filter import NoNamespaces, filter_program

BUBBLEWRAP: Final = "bubblewrap"
NAMESPACES: Final = "namespaces"
ETC_FOLDER: Final = "etc"
UNREADABLE: Final = "unreadable"
NOBODY: Final = 65534
TRIAL_SECONDS: Final = 20.0
INSTALL: Final = (
    "install bubblewrap (apt-get install bubblewrap, dnf install bubblewrap, apk add bubblewrap)"
)
OFF: Final = '[worker] sandbox = "off"'
_TRIAL: Final = """
echo > trial && cat /proc/version || exit 1
exec "$1" -S -E -c 'import sys; open(sys.argv[1]).close()' "$2"
"""


class NoSandbox(Exception):
    """The configuration requires a sandbox, and this machine has none."""


class Unreadable(NoSandbox):
    """The walls stand, and Mycel's own files are behind them."""


class SandboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks of this worker are held by."""

    plan: SandboxPlan
    sandbox: str
    """`bubblewrap`, `namespaces`, or nothing."""
    walls: tuple[str, ...]
    """All that keeps a task where it belongs, Landlock with its version."""
    network: bool
    """Whether tasks that ask for the network get it."""
    limits: tuple[str, ...]
    """Which can be enforced."""
    remarks: dict[str, str]
    """What is not there, and why: for the log."""
    closed: str = ""
    """Why it takes no tasks; empty if it does."""
    advice: str = ""
    """What its owner can do for better walls; empty if there is nothing better."""

    @property
    def line(self) -> str:
        """For people: what holds tasks, or why there are none, and what to do about it."""
        if self.closed:
            return f"nothing, and it takes none: {self.closed}"
        held = ", ".join(self.walls) or f"nothing: {self.remarks.get('sandbox', 'no sandbox')}"
        return f"{held}; for more, {self.advice}" if self.advice else held


def detect_sandbox(
    settings: Worker, root: Path, hidden: Path, memory: int, own: tuple[int, ...]
) -> SandboxStatus:
    """`root` has the tasks' folders, `hidden` is the node's own folder, `own` are the processes
    of this node. Raises `NoSandbox`."""
    remarks: dict[str, str] = {}
    launcher = _native.launcher()
    plan = SandboxPlan(launcher=launcher)
    if settings.sandbox == "off":
        remarks["sandbox"] = 'switched off: [worker] sandbox = "off"'
    elif not launcher:
        remarks["sandbox"] = "there is none but on Linux, on x86-64 and arm64"
    else:
        plan = _confined(settings, root, hidden, launcher, remarks)
    if settings.sandbox == "required" and not plan.wrap:
        raise NoSandbox(remarks["sandbox"])
    cgroups: CgroupPlan | None = None
    try:
        if launcher:
            if not plan.keeps_files:
                _try(plan, root)  # or nobody would have: limited tasks start by it, too
            cgroups = make_places(_mark(root), memory, own)
    except (NoCgroups, NoSandbox) as error:
        remarks["limits"] = f"by process, not by control groups: {error}"
    plan = msgspec.structs.replace(plan, cgroups=cgroups)
    closed = ""
    if settings.sandbox != "off" and not plan.keeps_files:
        if UNREADABLE in remarks:
            closed = remarks[UNREADABLE]
        elif os.geteuid() == 0:
            closed = _refusal(remarks)
    return SandboxStatus(
        plan=plan,
        sandbox=_kind(plan),
        walls=_walls(plan),
        network=settings.allow_network or not plan.keeps_files,
        limits=_enforced(cgroups),
        remarks=remarks,
        closed=closed,
        advice="" if plan.wrap or settings.sandbox == "off" else _advice(),
    )


def _kind(plan: SandboxPlan) -> str:
    if not plan.wrap:
        return ""
    return NAMESPACES if plan.own else BUBBLEWRAP


def _refusal(remarks: dict[str, str]) -> str:
    return (
        "it runs as root, and nothing would hold its tasks "
        f"({remarks.get('sandbox', 'no sandbox')}): run it as another user, {_advice()}, "
        f"or set {OFF}"
    )


def _advice() -> str:
    """Root makes namespaces unless it is kept from it; others need the kernel's leave."""
    if os.geteuid() == 0:
        return "give it CAP_SYS_ADMIN"
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    with contextlib.suppress(OSError):
        if restricted.read_text().strip() == "1":
            return (
                "let users make namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
            )
    allow = "let users make namespaces (sysctl user.max_user_namespaces)"
    return allow if shutil.which("bwrap") else f"{INSTALL}, or {allow}"


def _enforced(cgroups: CgroupPlan | None) -> tuple[str, ...]:
    if cgroups is None:
        by_process = ("memory",) if os.geteuid() == 0 else ("memory", "processes")
        return (*by_process, "file_size", "disk", "wall_time")
    kinds = {"memory": "memory", "cpu": "cpu", "pids": "processes"}
    there = [kinds[kind] for kind in kinds if cgroups.version == 2 or kind in cgroups.places]
    return (*there, "file_size", "disk", "wall_time")


def _mark(root: Path) -> str:
    """The same whenever this worker starts, so that it finds what it left."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:12]


def _walls(plan: SandboxPlan) -> tuple[str, ...]:
    found = {
        _kind(plan): bool(plan.wrap),
        "seccomp": bool(plan.filter),
        f"landlock {landlock.version()}": plan.rules is not None,
    }
    return tuple(name for name, is_there in found.items() if is_there)


def _confined(
    settings: Worker, root: Path, hidden: Path, launcher: bytes, remarks: dict[str, str]
) -> SandboxPlan:
    """The most that works here, each tried."""
    readable = _readable(settings.readable_paths)
    kernel = landlock.version()
    if not kernel:
        remarks["landlock"] = "this kernel has none, or too old a one (Linux 5.19 or later has it)"
    bare = SandboxPlan(
        launcher=launcher,
        filter=filter_program() or b"",
        visible=(*SYSTEM, *SYSTEM_LINKS, *(f"/etc/{name}" for name in ETC), *readable),
    )
    candidates: list[tuple[str, SandboxPlan]] = []
    for program in (shutil.which("bwrap"), ""):
        if program is None:
            remarks[BUBBLEWRAP] = "not installed"
            continue
        try:
            wrapped = _wrapped(bare, program, settings, hidden, root / ETC_FOLDER, readable)
        except NoSandbox as error:
            remarks["sandbox"] = str(error)
            break
        if kernel:
            rules = landlock.rules(kernel, readable, wrapped=True)
            candidates.append(("landlock", msgspec.structs.replace(wrapped, rules=rules)))
        candidates.append(("sandbox", wrapped))
    if kernel and os.geteuid() != 0:
        candidates.append(("landlock", _kept(bare, kernel, readable, str(hidden.resolve()))))
    for wall, plan in candidates:
        try:
            _try(plan, root)
        except NoSandbox as error:
            remarks[UNREADABLE if isinstance(error, Unreadable) else wall] = str(error)
        else:
            remarks.pop(UNREADABLE, None)
            if plan.wrap:
                remarks.pop("sandbox", None)  # of the one tried before
            if plan.rules is not None:
                remarks.pop("landlock", None)
            return plan
    return SandboxPlan(launcher=launcher)


def _wrapped(
    bare: SandboxPlan,
    program: str,
    settings: Worker,
    hidden: Path,
    etc: Path,
    readable: tuple[str, ...],
) -> SandboxPlan:
    """`program`: bubblewrap, or nothing where the launcher does it."""
    is_root = os.geteuid() == 0
    seen = (*SYSTEM, *SYSTEM_LINKS, "/etc", *readable)
    links = links_on_the_way(_sources(settings.readable_paths), seen)
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
            links=tuple((target, path) for path, target in links.items()),
        ),
        offline=OFFLINE,
        online=online_words(),
        drop=("ids", str(NOBODY), str(NOBODY)) if is_root else (),
        user=NOBODY if is_root else -1,
        own=not program,
    )


def _kept(bare: SandboxPlan, kernel: int, readable: tuple[str, ...], hidden: str) -> SandboxPlan:
    """By Landlock and seccomp, without namespaces."""
    signals = landlock.scopes_signals(kernel)
    folder = str(_package().parent)
    # Python lists the folder that a package is in. Where the node's home is in there too, its
    # names are not for tasks.
    listed = () if is_within(hidden, folder) else (folder,)
    return msgspec.structs.replace(
        bare,
        rules=landlock.rules(kernel, readable, wrapped=False, hidden=hidden, listed=listed),
        filter=filter_program(alone=NoNamespaces(network=False, scopes_signals=signals)) or b"",
        online_filter=filter_program(alone=NoNamespaces(network=True, scopes_signals=signals))
        or b"",
    )


def _package() -> Path:
    return Path(__file__).resolve().parents[2]


def _sources(configured: tuple[str, ...]) -> tuple[str, ...]:
    """The worker's own Python and Mycel, by the paths that interpreters find them by, and what its
    owner shows."""
    package = Path(__file__).absolute().parents[2]
    if package.parent.name in ("site-packages", "dist-packages"):
        package = package.parent  # what it imports is beside it
    search = [Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    found = [
        Path(sys.executable),
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(os.__file__).parent,
        package,
        *search,
        *(Path(path).expanduser() for path in configured),
    ]
    return tuple(str(path.absolute()) for path in found)


def _readable(configured: tuple[str, ...]) -> tuple[str, ...]:
    """Where those really are. What lies in another of these is there already."""
    kept: list[Path] = []
    for path in sorted({Path(one).resolve() for one in _sources(configured)}):
        covered = any(path.is_relative_to(one) for one in (*map(Path, SYSTEM), *kept))
        # Not `Path.exists`: it raises where a folder may not be searched.
        if os.path.exists(path) and not covered and path != Path("/"):  # noqa: PTH110
            kept.append(path)
    return tuple(str(path) for path in kept)


def _try(plan: SandboxPlan, root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trial-", dir=root))
        alone = "Landlock" if plan.rules is not None else "the launcher"
        kind = _kind(plan) or alone
        package = str(_package() / "__init__.py")
        try:
            give(folder, plan.user)
            files = Descriptors(
                _held_file(stack, "mycel-launch", plan.launcher),
                _held_file(stack, "mycel-filter", plan.filter) if plan.filter else -1,
            )
            launcher = f"/proc/self/fd/{files.launcher}"
            words = confinement_words(plan, RunConfinement(), folder, launcher, (), {}, files)
            done = subprocess.run(
                [*words, "/bin/sh", "-c", _TRIAL, "sh", sys.executable, package],
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=folder,
                timeout=TRIAL_SECONDS,
                pass_fds=tuple(one for one in (files.launcher, files.filter) if one >= 0),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoSandbox(_does_not(kind, str(error))) from error
    if done.returncode != 0 and done.stdout:
        place = os.path.commonpath([sys.prefix, package])
        raise Unreadable(
            f"tasks cannot read Mycel in {place}: let others read it (chmod -R o+rX), or install "
            "it elsewhere"
        )
    if done.returncode != 0 or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise NoSandbox(_does_not(kind, said or f"exit {done.returncode}"))


def _does_not(kind: str, why: str) -> str:
    verb = "do" if kind == NAMESPACES else "does"
    return f"{kind} {verb} not work here: {why.removeprefix('mycel-launch: ')}"


def _held_file(stack: contextlib.ExitStack, name: str, content: bytes) -> int:
    descriptor = memory_file(name, content)
    stack.callback(os.close, descriptor)
    return descriptor


assert LAUNCHER_DESCRIPTOR > 4, "an interpreter has its socket and its memory below"
