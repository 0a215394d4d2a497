"""An attempt to do harm: what it runs, and how the outside sees whether it succeeded.

Each is a Python script that calls `escaped(…)` with whether it got what it wanted. It runs
twice: without any sandbox and limits (the control, which shows that it works), and held as a
worker holds tasks. The scene is what there is to be harmed: keys, folders, sockets, a victim.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import pty
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mycel.drivers.interface import Finished
from mycel.drivers.sandbox.run_confinement import Limits

SECRET: Final = "the owl flies at midnight"
LIMITS: Final = Limits(memory=160 << 20, processes=64, file_size=24 << 20, disk=40 << 20)
NAMESPACES: Final = {"user": 0x10000000, "mount": 0x00020000, "network": 0x40000000}
_PRELUDE: Final = """
import ctypes, json, os, sys, time
scene = json.loads(os.environ["SCENE"])
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return libc.syscall(ctypes.c_long(number), *arguments)
def escaped(really=True):
    print("ESCAPED" if really else "held", flush=True)
print("tried", flush=True)
try:
{body}
except BaseException as error:
    print("held:", repr(error), flush=True)
"""


@dataclass
class Scene:
    """What an attempt is aimed at; made anew for each."""

    folder: Path
    victim: subprocess.Popen[bytes]
    stream: socket.socket
    datagram: socket.socket
    abstract: socket.socket
    local: socket.socket
    letters: socket.socket
    """Takes datagrams at a path."""
    lane: socket.socket
    """Where the tasks of another lane report."""
    terminal: tuple[int, int]
    memory: int
    """A segment of shared memory by its number, with the secret in it."""
    shared: Path
    """The same by a name."""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def outside(self) -> Path:
        return Path(self.facts["outside"])

    def was_called(self) -> bool:
        """Whether anybody has connected to one of the sockets, or sent it something."""
        for listening in (self.stream, self.abstract, self.local, self.lane):
            try:
                listening.accept()[0].close()
            except BlockingIOError:
                continue
            return True
        for letters in (self.datagram, self.letters):
            with contextlib.suppress(BlockingIOError):
                return bool(letters.recv(16))
        return False

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        sockets = (self.stream, self.datagram, self.abstract, self.local, self.letters, self.lane)
        for one in sockets:
            one.close()
        for descriptor in self.terminal:
            os.close(descriptor)
        _libc.shmctl(self.memory, 0, None)
        self.shared.unlink(missing_ok=True)
        path = Path(self.facts["lane"])
        path.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):  # moved away
            path.parent.rmdir()


_libc = ctypes.CDLL(None, use_errno=True)
_libc.shmat.restype = ctypes.c_void_p
_scenes = itertools.count()


def set_scene(folder: Path) -> Scene:
    home, outside = folder / "home", folder / f"outside-{next(_scenes)}"
    other = folder / "root/process/other"
    for path in (home / "worker-1", home / "scheduler", outside, other):
        path.mkdir(parents=True, exist_ok=True)
    for path in (
        home / "token",
        home / "owner.key",
        home / "worker-1/identity.key",
        home / "scheduler/journal.db",
        other / "file",
    ):
        path.unlink(missing_ok=True)
        path.write_text(SECRET)
        path.chmod(0o600)
    outside.chmod(0o777)
    stream, datagram = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
    abstract, local = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    for one in (stream, datagram):
        one.bind(("127.0.0.1", 0))
    name = f"mycel-attack-{os.getpid()}-{stream.getsockname()[1]}"
    abstract.bind(f"\0{name}")
    local.bind(str(outside / "socket"))
    (outside / "socket").chmod(0o777)
    for one in (stream, abstract, local):
        one.listen()
    letters, lane = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX)
    letters.bind(str(outside / "letters"))
    (outside / "letters").chmod(0o777)
    # As the worker has them: in a folder whose names nobody may read. The prefix is not the
    # worker's: any worker that starts meanwhile would remove the folder as abandoned.
    seats = Path(tempfile.mkdtemp(prefix="mycel-attack-sockets-"))
    seats.chmod(0o711)
    lane.bind(str(seats / "lane-2"))
    (seats / "lane-2").chmod(0o666)
    lane.listen()
    for one in (stream, datagram, abstract, local, letters, lane):
        one.setblocking(False)
    memory = _libc.shmget(0, 4096, 0o1600)
    place = _libc.shmat(memory, None, 0)
    ctypes.memmove(place, SECRET.encode(), len(SECRET))
    _libc.shmdt(ctypes.c_void_p(place))
    shared = Path(f"/dev/shm/mycel-scene-{os.getpid()}-{stream.getsockname()[1]}")
    shared.write_text(SECRET)
    shared.chmod(0o600)
    terminal = pty.openpty()
    victim = subprocess.Popen(["sleep", "1000"], env={"SECRET": SECRET})
    scene = Scene(
        folder,
        victim,
        stream,
        datagram,
        abstract,
        local,
        letters,
        lane,
        terminal,
        memory,
        shared,
    )
    scene.facts = {
        "secret": SECRET,
        "token": str(home / "token"),
        "owner_key": str(home / "owner.key"),
        "identity_key": str(home / "worker-1/identity.key"),
        "journal": str(home / "scheduler/journal.db"),
        "home": str(home),
        "lane": str(seats / "lane-2"),
        "terminal": os.ttyname(terminal[1]),
        "memory": memory,
        "shared": str(shared),
        "host": os.uname().nodename,
        "other": str(other),
        "outside": str(outside),
        "port": stream.getsockname()[1],
        "datagram_port": datagram.getsockname()[1],
        "abstract": name,
        "worker": os.getpid(),
        "victim": victim.pid,
        "mark": f"{victim.pid}.{stream.getsockname()[1]}",
    }
    return scene


def said_so(_scene: Scene, end: Finished) -> bool:
    return b"ESCAPED" in end.stdout


@dataclass(frozen=True)
class Attack:
    name: str
    script: str
    succeeded: Callable[[Scene, Finished], bool] = said_so
    no_control: str = ""
    """Why it cannot be shown to succeed, where it cannot."""
    prepare: Callable[[Scene], None] | None = None

    def command(self) -> tuple[str, ...]:
        body = "\n".join(f"    {line}" for line in self.script.strip().splitlines())
        return (sys.executable, "-S", "-E", "-c", _PRELUDE.replace("{body}", body))

    def environment(self, scene: Scene) -> tuple[tuple[str, str], ...]:
        return (("SCENE", json.dumps(scene.facts)),)
