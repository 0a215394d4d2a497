"""An attempt to do harm: what it runs, and how the outside sees whether it succeeded.

Each is a Python script that calls `escaped(…)` with whether it got what it wanted. It runs
twice: without any sandbox and limits (the control, which shows that it works), and held as a
worker holds tasks. The scene is what there is to be harmed: keys, folders, sockets, a victim.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mycel.drivers.interface import Finished
from mycel.drivers.sandbox.holding import Limits

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
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def outside(self) -> Path:
        return self.folder / "outside"

    def was_called(self) -> bool:
        """Whether anybody has connected to one of the sockets, or sent it something."""
        for listening in (self.stream, self.abstract, self.local):
            try:
                listening.accept()[0].close()
            except BlockingIOError:
                continue
            return True
        try:
            return bool(self.datagram.recv(16))
        except BlockingIOError:
            return False

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for one in (self.stream, self.datagram, self.abstract, self.local):
            one.close()


def set_scene(folder: Path) -> Scene:
    home, outside, other = folder / "home", folder / "outside", folder / "root/process/other"
    for path in (home / "worker-1", outside, other):
        path.mkdir(parents=True, exist_ok=True)
    for path in (
        home / "token",
        home / "owner.key",
        home / "worker-1/identity.key",
        other / "file",
    ):
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
    for one in (stream, datagram, abstract, local):
        one.setblocking(False)
    victim = subprocess.Popen(["sleep", "1000"], env={"SECRET": SECRET})
    scene = Scene(folder, victim, stream, datagram, abstract, local)
    scene.facts = {
        "secret": SECRET,
        "token": str(home / "token"),
        "owner_key": str(home / "owner.key"),
        "identity_key": str(home / "worker-1/identity.key"),
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
