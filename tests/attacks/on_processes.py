"""Attempts on processes: those of the worker, of others, and to outlive the task."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from mycel.drivers.interface import Finished

from .attack import Attack, Scene

DEATH_SECONDS = 1.0
"""A killed process is not gone at once."""
_DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        os.execve("/bin/sleep", ["sleep", "4" + scene["mark"]], {variables})
    os._exit(0)
os.wait()
"""
_UNTIL_IT_RUNS = """
end = time.monotonic() + 15
mark = ("4" + scene["mark"]).encode()
def there():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in open(f"/proc/{name}/cmdline", "rb").read().split(b"\\0"):
                return True
        except OSError:
            pass
while not there() and time.monotonic() < end:
    time.sleep(0.005)
"""


def _survivor(scene: Scene) -> int | None:
    mark = f"4{scene.facts['mark']}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "cmdline").read_bytes().split(b"\0"):
                    return int(entry.name)
            except OSError:
                continue
    return None


def _survived(scene: Scene, _end: Finished) -> bool:
    found = _survivor(scene)
    if found is not None:
        os.kill(found, 9)
    return found is not None


def _victim_died(scene: Scene, _end: Finished) -> bool:
    try:
        scene.victim.wait(timeout=DEATH_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _with_setuid_program(scene: Scene) -> None:
    program = scene.folder / "modules" / "id"
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    scene.facts["setuid"] = str(program)


ATTACKS = [
    Attack(
        "sees the worker",
        'escaped(b"py" in open(f"/proc/{scene[\'worker\']}/cmdline", "rb").read())',
    ),
    Attack(
        "reads the environment of another process",
        'escaped(scene["secret"] in open(f"/proc/{scene[\'victim\']}/environ").read())',
    ),
    Attack(
        "reads the memory of another process",
        'open(f"/proc/{scene[\'victim\']}/mem", "rb")\nescaped()',
    ),
    Attack(
        "traces another process",
        'escaped(libc.ptrace(16, scene["victim"], 0, 0) == 0)\n'
        'libc.ptrace(17, scene["victim"], 0, 0)',
    ),
    Attack(
        "traces its own child",
        "child = os.fork()\n"
        "if child == 0:\n    time.sleep(5)\n    os._exit(0)\n"
        "escaped(libc.ptrace(16, child, 0, 0) == 0)\n"
        "os.kill(child, 9)",
    ),
    Attack(
        "copies the memory of another process",
        "maps = open(f\"/proc/{scene['victim']}/maps\").readline()\n"
        'start = int(maps.split("-")[0], 16)\n'
        "class Part(ctypes.Structure):\n"
        '    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]\n'
        "target = ctypes.create_string_buffer(16)\n"
        "here, there = Part(ctypes.addressof(target), 16), Part(start, 16)\n"
        "parts = ctypes.byref(here), 1, ctypes.byref(there), 1, 0\n"
        "escaped(libc.process_vm_readv(scene['victim'], *parts) == 16)",
    ),
    Attack("signals the worker", 'os.kill(scene["worker"], 0)\nescaped()'),
    Attack("signals whoever started it", "os.kill(os.getppid(), 0)\nescaped(os.getppid() > 1)"),
    Attack("ends another process", 'os.kill(scene["victim"], 9)', _victim_died),
    Attack(
        "takes a descriptor from the worker",
        "descriptor = os.pidfd_open(scene['worker'])\nescaped(call(438, descriptor, 0, 0) >= 0)",
    ),
    Attack(
        "leaves a daemon behind",
        _DAEMON.replace("{variables}", "dict(os.environ)") + _UNTIL_IT_RUNS,
        _survived,
        no_control="adopted and ended without the sandbox, too",
    ),
    Attack(
        "leaves a daemon without traces behind",
        _DAEMON.replace("{variables}", "{}") + _UNTIL_IT_RUNS,
        _survived,
    ),
    Attack(
        "leaves its process group",
        "if os.fork() == 0:\n"
        "    os.setpgid(0, 0)\n"
        "    os.dup2(os.open(os.devnull, os.O_RDWR), 1)\n"
        "    os.dup2(1, 2)\n"
        '    os.execve("/bin/sleep", ["sleep", "4" + scene["mark"]], {})\n' + _UNTIL_IT_RUNS,
        _survived,
    ),
    Attack("is root", "escaped(os.getuid() == 0)"),
    Attack("becomes root", "os.setuid(0)\nescaped()"),
    Attack(
        "becomes root by a setuid program",
        "import subprocess\n"
        "said = subprocess.run([scene['setuid']], capture_output=True, text=True).stdout\n"
        'escaped("uid=0" in said)',
        prepare=_with_setuid_program,
    ),
    Attack(
        "has capabilities",
        'line = next(l for l in open("/proc/self/status") if l.startswith("CapEff"))\n'
        "escaped(int(line.split()[1], 16) != 0)",
    ),
    Attack("is more important than others", "os.nice(-5)\nescaped()"),
    Attack(
        "runs before all others",
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\nescaped()",
    ),
    Attack(
        "has descriptors that nobody gave it",
        'names = [name for name in os.listdir("/proc/self/fd") if int(name) > 2]\n'
        'paths = [f"/proc/self/fd/{name}" for name in names]\n'
        "links = [os.readlink(path) for path in paths if os.path.lexists(path)]\n"
        'escaped([one for one in links if not one.startswith("/proc/")])',
        no_control="the spawn helper leaves none open without the sandbox, either",
    ),
]
