# ruff: noqa: PTH114, PTH115, PTH116, PTH118, PTH120
# pathlib costs more than the calls it wraps, here once per task
"""The spawn helper's side: a run's hold becomes words before its command.

    launcher ─ joins its control groups ─▶ bwrap ─ the sandbox ─┐
       ┌────────────────────────────────────────────────────────┘
       └▶ launcher ─ gives up root, Landlock, seccomp ─▶ command

Each stage is there only where it is needed; without bubblewrap one launcher does it all: it makes
the same sandbox from the same words, or, where the kernel refuses that, stays as the keeper of a
task that Landlock and seccomp hold. The
launcher (`native/python/launch`) does as it is told by its words, and is found open under a
number, so that it need not be seen by tasks. None of the stages sees what a task says of the
dynamic loader or the C library: where a task's folder is ready before it starts, a library in it
would otherwise run in bubblewrap, outside of any sandbox. Such variables are set last of all.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import stat
from collections.abc import Iterator
from typing import Final

import msgspec

from .bubblewrap import LINKS_MAX, device_words, folder_words, is_within, path_words, with_room
from .cgroups import Cgroup, Cgroups
from .landlock import rule_words
from .run_confinement import Limits, RunConfinement, SandboxPlan, give

CHANNEL_DESCRIPTOR: Final = 7
"""Where a task reports that may connect to nothing."""
LAUNCHER_DESCRIPTOR: Final = 8
FILTER_DESCRIPTOR: Final = 9
ROOMY_MAX: Final = 64
SYSTEM_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin")
SOCKET_VARIABLE: Final = "MYCEL_SOCKET"
_MEMORY_FILE_RUNS: Final = 0x10
"""MFD_EXEC, which kernels before 6.3 do not know, and give to all."""
_LOADERS: Final = ("LD_", "GLIBC_", "MALLOC_")
_LIBRARYS: Final = frozenset(
    {
        "GCONV_PATH",
        "GETCONF_DIR",
        "HOSTALIASES",
        "LANGUAGE",
        "LOCALDOMAIN",
        "LOCPATH",
        "NIS_PATH",
        "NLSPATH",
        "OUTPUT_CHARSET",
        "RES_OPTIONS",
        "RESOLV_HOST_CONF",
        "TMPDIR",
        "TZDIR",
    }
)
"""Those that the C library ignores in programs that gain rights."""


class NotVisible(Exception):
    """The task's fault, as far as it can know; says what to do."""

    def __init__(self, command: str) -> None:
        super().__init__(
            f"command not found in the sandbox: {command!r}; tasks see the system and their "
            "working folder: send the program with the job, or let the worker's owner add its "
            "folder to [worker] readable_paths"
        )


class Launch(msgspec.Struct, frozen=True):
    """How to start a command so that it is held."""

    words: tuple[str, ...]
    """Before its own."""
    environment: dict[str, str]
    opens: tuple[tuple[int, str], ...] = ()
    """Files that it finds open, by number."""
    group: Cgroup | None = None
    confined: bool = False
    """Whether it has processes of its own, which end together."""
    kept: bool = False
    """…because a keeper ends them, when it is asked to or its task has ended."""
    limits: Limits = Limits()
    cores: tuple[int, ...] = ()


class Launcher:
    def __init__(self, plan: SandboxPlan) -> None:
        self._plan = plan
        self._cgroups = None if plan.cgroups is None else Cgroups(plan.cgroups)
        files = Descriptors(LAUNCHER_DESCRIPTOR, FILTER_DESCRIPTOR if plan.filter else -1)
        self._files = files
        self._roomy: dict[int, SandboxPlan] = {}
        self._path = os.environ.get("PATH", "")
        # The worker's own may name only places that tasks do not see.
        missing = [one for one in SYSTEM_PATH if one not in self._path.split(os.pathsep)]
        self._path_inside = os.pathsep.join([self._path, *missing])
        self._opens: list[tuple[int, str]] = []
        # Opened anew by each: a copy of the descriptor would share its position.
        self._launcher = ""
        if plan.launcher:
            self._launcher = f"/proc/self/fd/{memory_file('mycel-launch', plan.launcher)}"
            self._opens.append((files.launcher, self._launcher))
        self._online = self._opens
        if plan.filter:
            path = f"/proc/self/fd/{memory_file('mycel-filter', plan.filter)}"
            other = path
            if plan.online_filter:
                other = f"/proc/self/fd/{memory_file('mycel-filter', plan.online_filter)}"
            self._online = [*self._opens, (files.filter, other)]
            self._opens = [*self._opens, (files.filter, path)]

    @property
    def confines(self) -> bool:
        return bool(self._plan.wrap)

    def give(self, folder: str) -> None:
        """Makes a working folder the task's own."""
        give(folder, self._plan.user)

    def sees(self, path: str, confinement: RunConfinement, folder: str) -> bool:
        """Whether a path of this machine is there for a task."""
        plan = self._plan
        if not plan.keeps_files:
            return True
        real = os.path.realpath(path)  # costs less than what wraps it
        there = (*plan.visible, *confinement.readable, *confinement.writable, folder)
        return any(is_within(real, one) for one in there)

    def inside(self, path: str, confinement: RunConfinement, folder: str) -> str:
        """The path by which a task finds a program: a link to it, from where tasks see nothing, is
        followed as far as needed, and no further, since some programs go by their name."""
        plan = self._plan
        if not plan.keeps_files or not path.startswith("/"):
            return path
        there = (*plan.visible, *confinement.readable, *confinement.writable, folder)
        one = path
        for _ in range(LINKS_MAX):
            if any(is_within(one, place) for place in there):
                return one
            if not os.path.islink(one):
                break
            one = os.path.normpath(os.path.join(os.path.dirname(one), os.readlink(one)))
        return os.path.realpath(path)

    def check(self, path: str, confinement: RunConfinement, folder: str) -> None:
        """Raises the error of a command that cannot be started, which inside the sandbox nobody
        could tell from the command's own."""
        if not self._plan.keeps_files:
            return
        mode = os.stat(path).st_mode
        if not self.sees(path, confinement, folder):
            raise NotVisible(path)
        if not stat.S_ISREG(mode) or not mode & 0o111:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def launch(
        self, confinement: RunConfinement, folder: str, name: str, environment: dict[str, str]
    ) -> Launch:
        """`name` is that of its control group. Raises OSError if that cannot be made."""
        plan = self._plan
        environment = {**environment, **dict(confinement.environment)}
        limits = confinement.limits
        group = None
        # To join costs as much as to start a process: nobody pays who is not limited.
        if self._cgroups is not None and (limits.memory or limits.cores or limits.processes):
            group = self._cgroups.enter(name, limits)
        joining = () if group is None else group.words
        words: list[str] = []
        opens: tuple[tuple[int, str], ...] = ()
        if plan.keeps_files:
            environment["HOME"] = folder
            if environment.get("PATH") == self._path:
                environment["PATH"] = self._path_inside
            if plan.wrap:
                environment.pop("TMPDIR", None)
            else:
                environment["TMPDIR"] = folder  # the machine's own is not for tasks
                if confinement.socket:
                    environment[SOCKET_VARIABLE] = f"fd:{CHANNEL_DESCRIPTOR}"
            environment, loaders = _parted(environment)
            if limits.memory and group is None:
                plan = self._with_room(limits.memory)
            files, parent = self._files, os.getpid()
            words = confinement_words(
                plan,
                confinement,
                folder,
                self._launcher,
                joining,
                loaders,
                files,
                parent,
                tuple(_allowed(_process_limits(limits, grouped=group is not None))),
            )
            opens = tuple(self._online if confinement.network else self._opens)
        elif joining:
            words = [self._launcher, *joining, "--"]
        return Launch(
            words=tuple(words),
            environment=environment,
            opens=opens,
            group=group,
            confined=plan.keeps_files,
            kept=plan.is_kept,
            limits=limits,
            cores=confinement.cores,
        )

    def _with_room(self, limit: int) -> SandboxPlan:
        """What is put into memory counts as memory. Without control groups nobody counts it, so
        there is no more room for it than memory is allowed."""
        made = self._roomy.get(limit)
        if made is None:
            made = self._roomy[limit] = msgspec.structs.replace(
                self._plan, wrap=with_room(self._plan.wrap, limit)
            )
            while len(self._roomy) > ROOMY_MAX:
                del self._roomy[next(iter(self._roomy))]
        return made

    def leave(self, name: str) -> None:
        """Nothing more will run under this name."""
        if self._cgroups is not None:
            self._cgroups.leave(name)

    def close(self) -> None:
        if self._cgroups is not None:
            self._cgroups.close()


class Descriptors(msgspec.Struct, frozen=True):
    """The numbers under which the launcher finds itself and the filter; -1 is none."""

    launcher: int
    filter: int


def confinement_words(
    plan: SandboxPlan,
    confinement: RunConfinement,
    folder: str,
    launcher: str,
    joining: tuple[str, ...],
    loaders: dict[str, str],
    files: Descriptors,
    parent: int = 0,
    limits: tuple[tuple[int, int], ...] = (),
) -> list[str]:
    """All stages before a command that is kept from files. `parent`: the process that will start
    it, if that is known; the command ends with it. `limits`: of its processes, by kind."""
    last = [word for kind, limit in limits for word in ("limit", str(kind), str(limit))]
    last += plan.drop
    if plan.rules is not None:
        last += rule_words(plan.rules, confinement, folder)
    if files.filter >= 0:
        last += ["filter", str(files.filter)]
    for name, value in loaders.items():
        last += ["set", f"{name}={value}"]
    last += ["close", str(files.launcher), "--"]
    if not plan.wrap:
        # The channel before the rules: behind them nothing can connect.
        channel = (
            ["channel", str(CHANNEL_DESCRIPTOR), confinement.socket] if confinement.socket else []
        )
        return [launcher, *joining, "keep", str(parent), *channel, *last]
    if plan.own:
        words = [launcher, *joining, *(("parent", str(parent)) if parent else ()), "walls"]
    else:
        words = [launcher, *joining, "--"] if joining else []
    words += plan.wrap
    words += plan.online if confinement.network else plan.offline
    words += device_words(confinement.devices)
    words += path_words(confinement.readable, confinement.writable)
    if confinement.socket:
        words += path_words((confinement.socket,), ())
    words += folder_words(folder)
    if plan.own:
        return [*words, "--", *last]
    return [*words, "--", f"/proc/self/fd/{files.launcher}", *last]


def memory_file(name: str, content: bytes) -> int:
    """A file without a place, to be read and to be run, out of the way of the numbers that tasks
    and interpreters expect. Raises OSError."""
    try:
        made = os.memfd_create(name, os.MFD_CLOEXEC | _MEMORY_FILE_RUNS)
    except OSError:
        made = os.memfd_create(name)
    try:
        written = 0
        while written < len(content):
            written += os.write(made, content[written:])
        # Nobody can run what somebody may still write.
        reading = os.open(f"/proc/self/fd/{made}", os.O_RDONLY)
        try:
            return fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, FILTER_DESCRIPTOR + 1)
        finally:
            os.close(reading)
    finally:
        os.close(made)


def _parted(environment: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """What any program may see, and what would steer those that set the sandbox up."""
    loaders = {name: value for name, value in environment.items() if _steers(name, value)}
    if not loaders:
        return environment, loaders
    return {k: v for k, v in environment.items() if k not in loaders}, loaders


def _steers(name: str, value: str) -> bool:
    if name.startswith(_LOADERS) or name in _LIBRARYS:
        return True
    return "/" in value and (name == "LANG" or name.startswith("LC_"))


def is_bounded(launch: Launch) -> bool:
    """Most are not, and then need neither of the two below."""
    return bool(launch.cores) or next(_limits_of(launch), None) is not None


@contextlib.contextmanager
def bounded(launch: Launch) -> Iterator[None]:
    """This process has the limits and cores of the next one, which inherits them from its first
    instruction on, and none of its own afterwards."""
    before = os.sched_getaffinity(0) if launch.cores else None
    kept: list[tuple[int, tuple[int, int]]] = []
    try:
        if before is not None:
            with contextlib.suppress(OSError):  # cores that were taken from us meanwhile
                os.sched_setaffinity(0, launch.cores)
        for kind, limit in _allowed(_limits_of(launch)):
            soft, hard = resource.getrlimit(kind)
            resource.setrlimit(kind, (limit, hard))
            kept.append((kind, (soft, hard)))
        yield
    finally:
        for kind, values in kept:
            resource.setrlimit(kind, values)
        if before is not None:
            os.sched_setaffinity(0, before)


def harden(process_id: int, launch: Launch) -> None:
    """Nor can it raise its limits again. The launcher does the same: it may have started others
    by now."""
    for kind, limit in _limits_of(launch):
        with contextlib.suppress(OSError, ValueError):  # it has ended already
            resource.prlimit(process_id, kind, (limit, limit))


def _allowed(limits: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """None of them beyond what we have ourselves."""
    for kind, limit in limits:
        hard = resource.getrlimit(kind)[1]
        yield kind, limit if hard == resource.RLIM_INFINITY else min(limit, hard)


def _limits_of(launch: Launch) -> Iterator[tuple[int, int]]:
    return _process_limits(launch.limits, grouped=launch.group is not None)


def _process_limits(limits: Limits, *, grouped: bool) -> Iterator[tuple[int, int]]:
    """Those that control groups do not know, or where there are none."""
    if limits.file_size:
        yield resource.RLIMIT_FSIZE, limits.file_size
    if not grouped:
        if limits.memory:
            yield resource.RLIMIT_AS, limits.memory
        if limits.processes and os.geteuid():
            # Root is not counted; of others all processes are, so it is no tight limit.
            yield resource.RLIMIT_NPROC, limits.processes
