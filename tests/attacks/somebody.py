"""A process that is nobody in particular: no root, and if need be a kernel that refuses namespaces.

The tests run as root, often from a checkout and with a Python that only root can reach. So the
process gets a mount namespace of its own in which the way to both is open, and gives up root.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

from mycel.drivers.sandbox.seccomp_filter import filter_program

SOMEBODY: Final = 1_000_000 + os.getpid()
"""A number that no user has, nor another test: limits of processes count by user."""
CHECKOUT: Final = Path(__file__).resolve().parents[2]
_NEW_MOUNTS: Final = 0x00020000
_PRIVATE: Final = 0x4000 | 0x40000
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_HERE: Final = -100
_SECCOMP, _NO_NEW_PRIVS, _FILTER = 22, 38, 2


def needed() -> list[Path]:
    """What Python and the tests are made of."""
    site = Path(sysconfig.get_path("purelib"))
    found = {
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(sys.executable).resolve(),
        CHECKOUT,
        site,
    }
    return sorted(one.resolve() for one in found)


def start(command: list[str], *, refuse_namespaces: bool = False, **options: Any) -> Any:
    """As `subprocess.Popen`; needs root."""

    def become() -> None:
        _open_the_way(needed())
        os.setgroups([])
        os.setresgid(SOMEBODY, SOMEBODY, SOMEBODY)
        os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
        if refuse_namespaces:
            refuse()

    return subprocess.Popen(command, preexec_fn=become, **options)


def refuse() -> None:
    """From now on this kernel has no namespaces for us, as where an administrator has said so."""
    libc = ctypes.CDLL(None, use_errno=True)
    # clone and unshare alone: tasks are to meet the filter that a worker gives them.
    program = _only_namespaces()
    text = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    given = Program(len(program) // 8, ctypes.addressof(text))
    _must(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _must(libc.prctl(_SECCOMP, _FILTER, ctypes.byref(given)))


def _only_namespaces() -> bytes:
    """The parts of the real filter that are about clone and unshare."""
    whole = filter_program()
    assert whole is not None
    steps = [whole[at : at + 8] for at in range(0, len(whole), 8)]
    numbers = {"x86_64": (56, 272), "aarch64": (220, 97)}[os.uname().machine]
    clone = next(i for i, one in enumerate(steps) if struct.unpack("<HBBI", one)[3] == numbers[0])
    length = struct.unpack("<HBBI", steps[clone])[2] + 1
    unshare = next(i for i, one in enumerate(steps) if struct.unpack("<HBBI", one)[3] == numbers[1])
    clone3 = next(i for i, one in enumerate(steps) if struct.unpack("<HBBI", one)[3] == 435)
    kept = steps[:4] + steps[unshare : unshare + 2] + steps[clone3 : clone3 + 2]
    return b"".join([*kept, *steps[clone : clone + length], steps[-1]])


def _open_the_way(paths: list[Path]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _must(libc.unshare(_NEW_MOUNTS))
    _must(libc.mount(None, b"/", None, _PRIVATE, None))
    closed = sorted({top for path in paths if (top := _first_closed(path)) is not None})
    trees = [(path, _tree(libc, path)) for path in paths if _first_closed(path) is not None]
    for top in closed:
        _must(libc.mount(b"tmpfs", os.fsencode(top), b"tmpfs", 0, b"mode=0755"))
    for path, tree in trees:
        if path.is_dir() or not stat.S_ISREG(os.fstat(tree).st_mode):
            path.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        _must(libc.syscall(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(path), 4))


def _first_closed(path: Path) -> Path | None:
    """The first folder on the way that strangers cannot enter."""
    for parent in reversed(path.parents):
        if not parent.stat().st_mode & 0o001:
            return parent
    return None


def _tree(libc: Any, path: Path) -> int:
    return _must(libc.syscall(_OPEN_TREE, _HERE, os.fsencode(path), 1 | 0x8000 | os.O_CLOEXEC))


def _must(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
