"""Attempts on what a task shares with others where it has no namespaces: their limits, priorities
and signals, their sockets, their memory, the modes and times of their files."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from mycel.drivers.interface import Finished

from .attack import Attack, Scene
from .on_processes import DEATH_SECONDS

_NUMBERS = {
    # prlimit64, ioprio_set, shmat, mq_open, tgkill, rt_sigqueueinfo, pidfd_send_signal
    "x86_64": (302, 251, 30, 240, 234, 129),
    "aarch64": (261, 30, 196, 180, 131, 138),
}
_PRLIMIT, _IOPRIO, _SHMAT, _MQ_OPEN, _TGKILL, _SIGQUEUE = _NUMBERS.get(
    os.uname().machine, (-1,) * 6
)


def _victim_died(scene: Scene, _end: Finished) -> bool:
    try:
        scene.victim.wait(timeout=DEATH_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _called(scene: Scene, _end: Finished) -> bool:
    return scene.was_called()


def _mode_changed(scene: Scene, _end: Finished) -> bool:
    path = Path(scene.facts["owner_key"])
    return stat.S_IMODE(path.stat().st_mode) != 0o600


def _is_empty(scene: Scene, _end: Finished) -> bool:
    return not Path(scene.facts["owner_key"]).read_bytes()


def _is_gone(scene: Scene, _end: Finished) -> bool:
    return not Path(scene.facts["journal"]).exists()


def _is_old(scene: Scene, _end: Finished) -> bool:
    return Path(scene.facts["owner_key"]).stat().st_mtime < 10


def _marked(scene: Scene, _end: Finished) -> bool:
    return bool(os.listxattr(scene.facts["owner_key"]))


ATTACKS = [
    Attack("reads the journal", 'escaped(scene["secret"] in open(scene["journal"]).read())'),
    Attack("removes the journal", 'os.unlink(scene["journal"])', _is_gone),
    Attack("empties a key", 'os.truncate(scene["owner_key"], 0)', _is_empty),
    Attack("shows a key to everybody", 'os.chmod(scene["owner_key"], 0o644)', _mode_changed),
    Attack(
        "shows a key to everybody by a descriptor",
        "os.chmod(f\"/proc/self/fd/{os.open(scene['owner_key'], os.O_PATH)}\", 0o644)",
        _mode_changed,
    ),
    Attack("changes the time of a key", 'os.utime(scene["owner_key"], (1, 1))', _is_old),
    Attack(
        "writes to a key's attributes",
        'os.setxattr(scene["owner_key"], b"user.mark", b"x")',
        _marked,
        no_control="not every file system has them",
    ),
    Attack(
        "watches the home",
        'escaped(libc.inotify_add_watch(libc.inotify_init1(0), scene["home"].encode(), 0xfff) > 0)',
    ),
    Attack(
        "changes another's limits",
        f"limits = (ctypes.c_uint64 * 2)(7, 7)\n"
        f"escaped(call({_PRLIMIT}, scene['victim'], 7, ctypes.byref(limits), None) == 0)",
    ),
    Attack(
        "reads another's limits",
        f"limits = (ctypes.c_uint64 * 2)()\n"
        f"escaped(call({_PRLIMIT}, scene['victim'], 7, None, ctypes.byref(limits)) == 0)",
    ),
    Attack("moves another to one core", 'os.sched_setaffinity(scene["victim"], {0})\nescaped()'),
    Attack("moves the worker to one core", 'os.sched_setaffinity(scene["worker"], {0})\nescaped()'),
    Attack(
        "slows another down",
        'os.setpriority(os.PRIO_PROCESS, scene["victim"], 19)\nescaped()',
    ),
    Attack(
        "slows all of a user down",
        "os.setpriority(os.PRIO_USER, os.getuid(), 1)\n"
        'escaped(os.getpriority(os.PRIO_PROCESS, scene["victim"]) > 0)',
    ),
    Attack(
        "slows another's disk down",
        f"escaped(call({_IOPRIO}, 1, scene['victim'], 3 << 13) == 0)",
    ),
    Attack(
        "gives another to the idle scheduler",
        'os.sched_setscheduler(scene["victim"], os.SCHED_IDLE, os.sched_param(0))\nescaped()',
    ),
    Attack(
        "ends another by its thread",
        f"call({_TGKILL}, scene['victim'], scene['victim'], 9)",
        _victim_died,
    ),
    Attack(
        "ends another by a handle",
        "import signal\n"
        "handle = os.pidfd_open(scene['victim'])\n"
        "signal.pidfd_send_signal(handle, 9)",
        _victim_died,
    ),
    Attack(
        "ends another by a queued signal",
        "import struct\n"
        'told = struct.pack("<iii", 9, 0, -1).ljust(128, b"\\0")\n'
        f"call({_SIGQUEUE}, scene['victim'], 9, told)",
        _victim_died,
    ),
    Attack(
        "has the kernel signal another",
        "import fcntl, socket\n"
        "one, two = socket.socketpair()\n"
        'fcntl.fcntl(one, 8, scene["victim"])\n'
        "fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)\n"
        'two.send(b"x")',
        _victim_died,
    ),
    Attack(
        "signals the group of another",
        'os.killpg(os.getpgid(scene["victim"]), 0)\nescaped()',
    ),
    Attack(
        "calls the socket of another lane",
        'import socket\nsocket.socket(socket.AF_UNIX).connect(scene["lane"])',
        _called,
    ),
    Attack(
        "calls the socket of another lane in its packets",
        "import socket\nsocket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)"
        '.connect(scene["lane"])',
        _called,
        no_control="the socket takes streams",
    ),
    Attack(
        "sends a letter to a path",
        "import socket\n"
        "out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        'out.sendto(b"x", scene["outside"] + "/letters")',
        _called,
    ),
    Attack(
        "sends a letter to a path from a pair",
        "import socket\n"
        "out, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        'out.sendto(b"x", scene["outside"] + "/letters")',
        _called,
    ),
    Attack(
        "listens to all packets of IPv6",
        "import socket\nsocket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)\nescaped()",
    ),
    Attack(
        "takes packets by the old way",
        "import socket\nsocket.socket(socket.AF_INET, 10, socket.htons(3))\nescaped()",
    ),
    Attack(
        "reads the machine's connections",
        'escaped(len(open("/proc/net/unix").readlines()) > 1)',
    ),
    Attack(
        "reads the machine's connections by its own number",
        'escaped(len(open(f"/proc/{os.getpid()}/task/{os.getpid()}/net/unix").readlines()) > 1)',
    ),
    Attack(
        "reads shared memory by its number",
        "libc.shmat.restype = ctypes.c_void_p\n"
        "place = libc.shmat(scene['memory'], None, 0)\n"
        "escaped(place not in (None, 2**64 - 1) and "
        'scene["secret"].encode() in ctypes.string_at(place, 64))',
    ),
    Attack(
        "removes shared memory by its number",
        "escaped(libc.shmctl(scene['memory'], 0, None) == 0)",
    ),
    Attack(
        "makes shared memory that outlives it",
        "number = libc.shmget(0, 4096, 0o1600)\n"
        "escaped(number >= 0 and scene['host'] == os.uname().nodename)\n"
        "libc.shmctl(number, 0, None)",
    ),
    Attack(
        "opens a queue of messages",
        "queue = ctypes.CDLL('librt.so.1', use_errno=True)\n"
        "name = ('/mycel-attack-' + scene['mark']).encode()\n"
        "escaped(queue.mq_open(name, 0o102, 0o600, None) >= 0 and "
        "scene['host'] == os.uname().nodename)\n"
        "queue.mq_unlink(name)",
    ),
    Attack("reads shared memory by its name", 'escaped(open(scene["shared"]).read())'),
    Attack("lists shared memory", 'escaped("mycel-scene" in str(os.listdir("/dev/shm")))'),
    Attack("opens the terminal of a user", 'os.open(scene["terminal"], os.O_RDWR)\nescaped()'),
    Attack(
        "writes to the terminal of a user",
        'os.write(os.open(scene["terminal"], os.O_WRONLY | os.O_NOCTTY), b"x")\nescaped()',
    ),
    Attack(
        "renames the machine",
        "name = scene['host'].encode()\nescaped(libc.sethostname(name, len(name)) == 0)",
    ),
    Attack(
        "reads the name of the machine",
        'escaped(scene["host"] in open("/proc/sys/kernel/hostname").read())',
    ),
    Attack(
        "reads the name of the machine in /etc",
        'escaped(open("/etc/hostname").read())',
        no_control="not every machine has it there",
    ),
    Attack(
        "reads the command of another process",
        'escaped(b"sleep" in open(f"/proc/{scene[\'victim\']}/cmdline", "rb").read())',
    ),
    Attack(
        "lists all processes",
        'escaped(str(scene["worker"]) in os.listdir("/proc"))',
    ),
    Attack(
        "looks into the folder of another process",
        "escaped(os.listdir(f\"/proc/{scene['victim']}/cwd\"))",
    ),
    Attack(
        "follows a descriptor of another process",
        "os.readlink(f\"/proc/{scene['worker']}/fd/0\")\nescaped()",
    ),
    Attack(
        "makes itself the last to be killed",
        'open("/proc/self/oom_score_adj", "w").write("-1000")\nescaped()',
        no_control="not every root may",
    ),
    Attack(
        "changes to the root of another", "os.chdir(f\"/proc/{scene['worker']}/root\")\nescaped()"
    ),
    Attack("lists the home", 'escaped(os.listdir(scene["home"]))'),
]
