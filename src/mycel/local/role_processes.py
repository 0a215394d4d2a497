"""The roles' processes: started side by side, watched until they serve, stopped for good."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mycel.access.home import Home, RoleFolder
from mycel.config.reload import Changes
from mycel.console.errors import CommandError

from .swarm_plan import config_path, role_of

if TYPE_CHECKING:  # only those who stop something pay for it
    import psutil

READY_SECONDS: Final = 30.0
GRACE_SECONDS: Final = 10.0
"""A role that was asked to stop has so long before it is killed."""
DRAIN_SECONDS_MAX: Final = 86400.0
"""Workers end by themselves when their `drain_seconds` are over; this is for one that hangs."""
CHILDREN_SECONDS: Final = 5.0
"""A worker's tasks are killed by its helper; what is left after so long, by us."""
SHOWN_LINES: Final = 12
CALLERS_OWN: Final = ("MYCEL_API", "MYCEL_TOKEN", "MYCEL_CONTEXT")
"""How whoever starts the swarm talks to another one: no role has to know."""


class Ready(msgspec.Struct):
    """What a role says of itself once it serves."""

    name: str
    pid: int
    peer: str = ""
    addresses: list[str] = []
    api: str = ""
    metrics: str = ""
    reloads: int = 0
    reloaded: Changes | None = None
    walls: str = ""


class Stopped(msgspec.Struct, frozen=True):
    name: str
    pid: int
    killed: bool
    """It did not end when it was asked to."""


class _Starting:
    def __init__(
        self,
        home: Home,
        name: str,
        command: list[str] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """`command` is the role with its options, else the one of the home's own settings."""
        self.name = name
        self.log = home.role(name).path / "output.log"
        self.log_start = self.log.stat().st_size if self.log.exists() else 0
        self.ready_fd, theirs = os.pipe()
        arguments = command or [role_of(name), "--config", str(config_path(home, name))]
        arguments += ["--home", str(home.path), "--name", name, "--ready-fd", str(theirs)]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mycel", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs],
                cwd=home.role(name).path,
                env=_environment() | (environment or {}),
                start_new_session=True,
            )
        os.close(theirs)
        self.line = b""

    def failure(self) -> CommandError:
        code = self.process.poll()
        how = "does not come up" if code is None else f"has ended with code {code}"
        with self.log.open("rb") as log:
            log.seek(self.log_start)
            lines = log.read().decode(errors="replace").splitlines()[-SHOWN_LINES:]
        said = "".join(f"\n  {line}" for line in lines)
        return CommandError(f"{self.name} {how}; {self.log} has more{said}")


def start(home: Home, names: Iterable[str]) -> dict[str, Ready]:
    """Starts all at once and returns when each of them serves; else nothing is left."""
    starting: list[_Starting] = []
    try:
        for name in names:
            starting.append(_Starting(home, name))  # noqa: PERF401 - Ctrl-C may come between two
        return _await_ready(starting)
    except BaseException:
        _kill([one.process for one in starting])
        raise
    finally:
        for one in starting:
            os.close(one.ready_fd)


def start_detached(role: str, name: str, home: Home, arguments: list[str], join: str) -> Ready:
    """Of a role that was started by hand: it goes on without us. Its invite is in its environment,
    where others do not see it."""
    home.role(name).create()
    environment = {"MYCEL_JOIN": join} if join else {}
    one = _Starting(home, name, [role, *arguments], environment)
    try:
        return _await_ready([one])[name]
    except BaseException:
        _kill([one.process])
        raise
    finally:
        os.close(one.ready_fd)


def _kill(roles: Iterable[subprocess.Popen[bytes]]) -> None:
    """With what they have started: what a worker asks of its machine would outlive it."""
    import psutil

    children: list[psutil.Process] = []
    living = [role for role in roles if role.poll() is None]
    for role in living:
        os.kill(role.pid, signal.SIGSTOP)  # now it starts nothing more
        os.waitid(os.P_PID, role.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        children += psutil.Process(role.pid).children(recursive=True)
        os.killpg(role.pid, signal.SIGKILL)
    for role in living:
        role.wait()
    _end(children)


def _end(children: list[psutil.Process]) -> None:
    """They end by themselves when their role has; those that do not are killed."""
    import psutil

    _, left = psutil.wait_procs(children, timeout=CHILDREN_SECONDS)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _await_ready(starting: list[_Starting]) -> dict[str, Ready]:
    ready: dict[str, Ready] = {}
    ends_at = time.monotonic() + READY_SECONDS
    waiting = {one.ready_fd: one for one in starting}
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    while waiting:
        left = ends_at - time.monotonic()
        events = poll.poll(left * 1000) if left > 0 else []
        if not events:
            raise next(iter(waiting.values())).failure()
        for descriptor, _ in events:
            one = waiting[descriptor]
            data = os.read(descriptor, 65_536)
            one.line += data
            if not data:
                one.process.wait(timeout=READY_SECONDS)
                raise one.failure()
            if one.line.endswith(b"\n"):
                ready[one.name] = msgspec.json.decode(one.line, type=Ready)
                poll.unregister(descriptor)
                del waiting[descriptor]
    return ready


def running(home: Home, names: Iterable[str] | None = None) -> dict[str, int]:
    """The pids of the roles that run now. Their locks say so: a pid alone may be anybody's."""
    folders = home.roles() if names is None else [home.role(name) for name in names]
    found = {}
    for folder in folders:
        pid = folder.holder()
        if pid:
            found[folder.name] = pid
    return found


def stop(
    home: Home,
    grace_seconds: float = GRACE_SECONDS,
    drain: bool = False,
    names: Iterable[str] | None = None,
) -> list[Stopped]:
    """Stops every role of this home, or those, and leaves none of their processes. To `drain`,
    workers go first, and have all the time that their own settings give to what they run."""
    wanted = None if names is None else set(names)
    roles = [
        _Stopping(folder, pid)
        for folder, pid in _holders(home)
        if wanted is None or folder.name in wanted
    ]
    if drain:
        workers = [role for role in roles if role.name.startswith("worker")]
        for role in workers:
            role.signal(signal.SIGTERM)
        for role in workers:
            role.wait(DRAIN_SECONDS_MAX)
    for role in roles:
        role.signal(signal.SIGTERM)
        if role.name.startswith("worker"):
            role.signal(signal.SIGINT)  # a second signal says: at once
    ends_at = time.monotonic() + grace_seconds
    for role in roles:
        if not role.wait(ends_at - time.monotonic()):
            role.kill()
    for role in roles:
        role.end_tasks()
    return [Stopped(role.name, role.pid, role.killed) for role in roles]


def _holders(home: Home) -> list[tuple[RoleFolder, int]]:
    found = []
    for folder in home.roles():
        pid = folder.holder()
        if pid:
            found.append((folder, pid))
    return found


class _Stopping:
    """One role on its way out. A pidfd cannot come to mean another process."""

    def __init__(self, folder: RoleFolder, pid: int) -> None:
        import psutil

        self.name = folder.name
        self.pid = pid
        self.killed = False
        self._descriptor: int | None = None
        self._tasks: list[psutil.Process] = []
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        if folder.holder() != pid:  # it has just ended, and the pid may be another's
            os.close(descriptor)
            return
        self._descriptor = descriptor
        with contextlib.suppress(psutil.NoSuchProcess):
            self._tasks = psutil.Process(pid).children(recursive=True)

    def signal(self, number: signal.Signals) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        if self._descriptor is None:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def kill(self) -> None:
        self.killed = True
        self.signal(signal.SIGKILL)
        self.wait(GRACE_SECONDS)

    def end_tasks(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        _end(self._tasks)


def _environment() -> dict[str, str]:
    """Roles run in their own folders: what is relative to ours must not be any more."""
    environment = {k: v for k, v in os.environ.items() if k not in CALLERS_OWN}
    paths = environment.get("PYTHONPATH")
    if paths:
        absolute = (str(Path(path).absolute()) for path in paths.split(os.pathsep) if path)
        environment["PYTHONPATH"] = os.pathsep.join(absolute)
    return environment
