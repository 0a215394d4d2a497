# ruff: noqa: PTH114, PTH115
# a path is followed as the kernel does, part by part
"""What a task sees of the machine: the words for bubblewrap, which the launcher knows too.

    /usr, /opt and what belongs to them     as they are, read-only
    /etc                                    what libraries need of it, as copies, read-only
    the worker's Python, readable paths     read-only
    its working folder                      at its own path, the only place that it can write
    /tmp, /dev/shm                          empty, its own, gone afterwards
    /proc                                   its own processes
    /home, /root, /run, /var, other tasks   nothing

With namespaces of its own for processes, mounts, host name, semaphores and, unless it asked and
the worker allows, the network.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SYSTEM: Final = ("/usr", "/opt", "/nix")
SYSTEM_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC: Final = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "OpenCL",
    "passwd",
    "pki",
    "protocols",
    "services",
    "ssl",
    "timezone",
    "vulkan",
)
PROCESSORS: Final = ("/sys/devices/system/cpu", "/sys/devices/system/node")
"""Numerical libraries ask here how many cores there are."""
NAMESPACES: Final = ("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
OFFLINE: Final = ("--unshare-net",)
HOST_NAME: Final = "mycel-task"
LINKS_MAX: Final = 40
"""As many as the kernel follows."""


def wrap_words(
    program: str,
    *,
    is_root: bool,
    readable: tuple[str, ...],
    hidden: str,
    etc: str,
    temporary_bytes: int,
    links: tuple[tuple[str, str], ...] = (),
) -> tuple[str, ...]:
    """Everything that tasks have in common. `hidden` is the worker's own folder: should a
    readable path contain it, it is covered. `etc`: the folder that they see as /etc. `links`
    are made, each to the first by the name of the second. Without a `program` the words are for
    the launcher."""
    words = [
        *([program] if program else []),
        "--die-with-parent",
        *NAMESPACES,
        "--hostname",
        HOST_NAME,
        "--cap-drop",
        "ALL",
    ]
    if is_root:
        # Only to give up root itself, as the first thing inside.
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            words += ["--cap-add", capability]
    else:
        words += ["--unshare-user"]
    for path in SYSTEM:
        if Path(path).is_dir():
            words += ["--ro-bind", path, path]
    for path in SYSTEM_LINKS:
        if Path(path).is_symlink():
            words += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).is_dir():
            words += ["--ro-bind", path, path]
    words += parent_words("/var/any", *PROCESSORS)
    words += ["--ro-bind", etc, "/etc"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    words += ["--perms", "1777", "--size", str(temporary_bytes), "--tmpfs", "/dev/shm"]  # noqa: S108
    words += ["--perms", "1777", "--size", str(temporary_bytes), "--tmpfs", "/tmp"]  # noqa: S108
    words += ["--symlink", "../tmp", "/var/tmp"]  # noqa: S108
    words += parent_words(*readable, *(path for _, path in links))
    for target, path in links:
        words += ["--symlink", target, path]
    for path in (*PROCESSORS, *readable):
        if Path(path).exists():
            words += ["--ro-bind", path, path]
    if any(is_within(hidden, path) for path in (*SYSTEM, *readable)):
        words += ["--tmpfs", hidden]
    return tuple(words)


def online_words() -> tuple[str, ...]:
    """Names are looked up as on the machine. The file is often a link to where tasks see
    nothing."""
    resolver = Path("/etc/resolv.conf")
    if not resolver.exists():
        return ()
    return ("--ro-bind", str(resolver.resolve()), str(resolver))


def folder_words(folder: str) -> tuple[str, ...]:
    """Its working folder; then the rest can be closed."""
    bound = ("--bind", folder, folder, "--chdir", folder)
    return (*parent_words(folder), *bound, "--remount-ro", "/dev", "--remount-ro", "/")


def parent_words(*paths: str) -> list[str]:
    """The folders on the way to these: bubblewrap would make them for root alone."""
    found: dict[str, None] = {}
    for path in paths:
        for parent in reversed(Path(path).parents):
            found.setdefault(str(parent))
    found.pop("/", None)
    return [word for path in found for word in ("--perms", "0755", "--dir", path)]


def path_words(readable: tuple[str, ...], writable: tuple[str, ...]) -> list[str]:
    words = parent_words(*readable, *writable)
    for path in readable:
        words += ["--ro-bind", path, path]
    for path in writable:
        words += ["--bind", path, path]
    return words


def with_room(words: tuple[str, ...], limit: int) -> tuple[str, ...]:
    """No place that is memory has more than `limit` bytes."""
    changed = list(words)
    for place, word in enumerate(words):
        if word == "--size":
            changed[place + 1] = str(min(int(words[place + 1]), limit))
    return tuple(changed)


def device_words(devices: tuple[str, ...]) -> list[str]:
    """Before /dev is closed, which `folder_words` do."""
    bound = [word for path in devices for word in ("--dev-bind-try", path, path)]
    return [*parent_words(*devices), *bound]


def links_on_the_way(paths: tuple[str, ...], seen: tuple[str, ...]) -> dict[str, str]:
    """Links by which these paths lead to where they are, as far as they are not seen anyway; what
    each leads to, by its own path. Python may be started by one, from anywhere."""
    found: dict[str, str] = {}
    for path in paths:
        way, here = list(reversed(Path(path).parts[1:])), "/"
        for _ in range(LINKS_MAX):
            while way and not os.path.islink(one := f"{here.rstrip('/')}/{way[-1]}"):
                here = os.path.normpath(one)
                way.pop()
            if not way:
                break
            way.pop()
            target = os.readlink(one)
            if not any(is_within(one, place) for place in seen):
                found[one] = target
            if target.startswith("/"):
                here = "/"
            way += reversed([part for part in target.split("/") if part])
    return found


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + os.sep)
