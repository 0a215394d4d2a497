"""Attempts on the kernel: mounts, namespaces, keys, devices, and calls with a history."""

from __future__ import annotations

import platform

from .attack import NAMESPACES, Attack

_CALLS = {
    "x86_64": {
        "add_key": 248,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "fanotify_init": 300,
        "name_to_handle_at": 303,
        "clone": 56,
    },
    "aarch64": {
        "add_key": 217,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "fanotify_init": 262,
        "name_to_handle_at": 264,
        "clone": 220,
    },
}.get(platform.machine(), {})


def _number(name: str) -> int:
    return _CALLS.get(name, -1)


ATTACKS = [
    Attack(
        "mounts a file system",
        'os.mkdir("m")\n'
        'escaped(libc.mount(b"none", b"m", b"tmpfs", 0, None) == 0)\n'
        'libc.umount(b"m")',
    ),
    Attack(
        "binds the root over its folder",
        'os.mkdir("m")\nescaped(libc.mount(b"/", b"m", None, 4096, None) == 0)\nlibc.umount(b"m")',
    ),
    *(
        Attack(f"makes a new {kind} namespace", f"escaped(libc.unshare({flag}) == 0)")
        for kind, flag in NAMESPACES.items()
    ),
    Attack(
        "clones itself into a new namespace",
        f"child = call({_number('clone')}, ctypes.c_ulong(0x40000000 | 17), 0, 0, 0, 0)\n"
        "if child == 0:\n    os._exit(0)\n"
        "escaped(child > 0)",
    ),
    Attack(
        "enters the namespace of another process",
        "descriptor = os.open(f\"/proc/{scene['worker']}/ns/uts\", os.O_RDONLY)\n"
        "escaped(libc.setns(descriptor, 0) == 0)",
    ),
    Attack("changes its root", 'os.chroot("/")\nescaped()'),
    Attack("makes a device", 'os.mknod("null", 0o20666, os.makedev(1, 3))\nescaped()'),
    Attack("opens the messages of the kernel", 'os.open("/dev/kmsg", os.O_RDONLY)\nescaped()'),
    Attack("opens a disk", 'os.open("/dev/loop-control", os.O_RDWR)\nescaped()'),
    Attack(
        "keeps something in a keyring",
        f'escaped(call({_number("add_key")}, b"user", b"mycel-attack", b"x", 1, -3) >= 0)',
    ),
    Attack(
        "loads a program into the kernel",
        # BPF_MAP_CREATE of an array with one element.
        "import struct\n"
        'attributes = struct.pack("<IIII", 2, 4, 4, 1).ljust(128, b"\\0")\n'
        f"escaped(call({_number('bpf')}, 0, attributes, 128) >= 0)",
    ),
    Attack(
        "counts events of the processor",
        "import struct\n"
        # A software counter of page faults.
        'event = ctypes.create_string_buffer(struct.pack("<IIQ", 1, 112, 2).ljust(112, b"\\0"))\n'
        f"escaped(call({_number('perf_event_open')}, event, 0, -1, -1, 0) >= 0)",
    ),
    Attack(
        "handles its own page faults", f"escaped(call({_number('userfaultfd')}, 0o2000000) >= 0)"
    ),
    Attack("listens to everybody's files", f"escaped(call({_number('fanotify_init')}, 0, 0) >= 0)"),
    Attack(
        "takes the handle of a folder",
        "import struct\n"
        'handle = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0).ljust(136, b"\\0"))\n'
        "mount = ctypes.c_int()\n"
        f"number = {_number('name_to_handle_at')}\n"
        'escaped(call(number, -100, b"/usr", handle, ctypes.byref(mount), 0) == 0)',
    ),
    Attack(
        "makes a ring of calls",
        "parameters = ctypes.create_string_buffer(120)\nescaped(call(425, 4, parameters) >= 0)",
    ),
    Attack("opens a tree of mounts", 'escaped(call(428, -100, b"/", 1) >= 0)'),
    Attack(
        "types into a terminal",
        "import fcntl, pty\n"
        "leader, follower = pty.openpty()\n"
        'fcntl.ioctl(follower, 0x5412, b"x")\n'
        "escaped()",
    ),
    Attack(
        "leaves its control group",
        "import glob\n"
        'files = [*glob.glob("/sys/fs/cgroup/pids/cgroup.procs"), "/sys/fs/cgroup/cgroup.procs"]\n'
        'open(files[0], "w").write("0")\n'
        "escaped()",
    ),
]
