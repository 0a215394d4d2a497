"""A seccomp filter: what the kernel refuses a confined task, whatever else it may do.

The filter is a program of the classic Berkeley packet filter, eight bytes an instruction,
written here as bytes; the launcher loads it last of all. It forbids by name and lets the rest
pass: tasks are programs of all kinds, and the walls are namespaces, ids and mounts. What is
forbidden are the ways to dig: other processes' memory, mounts, namespaces, keys, kernel code,
and calls with a long history of holes.

    wrong architecture, or x32 ─▶ the process is killed
    clone3 ─▶ "no such call": the C library then takes clone, whose flags can be seen
    clone with new namespaces, ioctl that types for others, sockets of odd families ─▶ EPERM
    anything in _FORBIDDEN ─▶ EPERM
    else ─▶ allowed
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final

import msgspec

_LOAD_WORD, _JUMP_EQUAL, _JUMP_ANY_BIT, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_CALL_OFFSET, _ARCHITECTURE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_X32_BIT: Final = 0x40000000
NEW_NAMESPACES: Final = 0x7E020080
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
TYPING_REQUESTS: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX put characters into a terminal as if its user had typed them."""
SOCKET_FAMILIES: Final = (1, 2, 10, 16)
"""Unix, IPv4, IPv6 and netlink, which the C library asks for the machine's addresses."""


_SINCE_2011: Final = {
    # The same number everywhere.
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
}
_FORBIDDEN: Final[dict[str, tuple[int | None, int | None]]] = {
    # On x86-64, and on arm64, which does not have all of the old ones.
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysctl": (156, None),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
    "vserver": (236, None),
}
_CLONE3: Final = 435


class _Architecture(msgspec.Struct, frozen=True):
    column: int
    """In the table above."""
    audit: int
    has_x32: bool
    clone: int
    ioctl: int
    socket: int


_ARCHITECTURES: Final = {
    "x86_64": _Architecture(0, 0xC000003E, has_x32=True, clone=56, ioctl=16, socket=41),
    "aarch64": _Architecture(1, 0xC00000B7, has_x32=False, clone=220, ioctl=29, socket=198),
}


def filter_program(machine: str | None = None) -> bytes | None:
    """The filter for this machine; nothing for architectures whose numbers we do not know."""
    architecture = _ARCHITECTURES.get(machine or platform.machine())
    return None if architecture is None else _assembled(architecture)


def _assembled(of: _Architecture) -> bytes:
    refuse = _return(_REFUSE | errno.EPERM)
    program = [
        _instruction(_LOAD_WORD, _ARCHITECTURE_OFFSET),
        _instruction(_JUMP_EQUAL, of.audit, if_true=1),
        _return(_KILL),
        _instruction(_LOAD_WORD, _CALL_OFFSET),
    ]
    if of.has_x32:
        program += [_instruction(_JUMP_AT_LEAST, _X32_BIT, if_false=1), _return(_KILL)]
    here = [numbers[of.column] for numbers in _FORBIDDEN.values()]
    for number in sorted([*_SINCE_2011.values(), *(one for one in here if one is not None)]):
        program += [_instruction(_JUMP_EQUAL, number, if_false=1), refuse]
    no_such_call = _return(_REFUSE | errno.ENOSYS)
    program += [_instruction(_JUMP_EQUAL, _CLONE3, if_false=1), no_such_call]
    program += _looking_at(
        of.clone, 0, [_instruction(_JUMP_ANY_BIT, NEW_NAMESPACES, if_false=1), refuse]
    )
    typing = [
        one
        for request in TYPING_REQUESTS
        for one in (_instruction(_JUMP_EQUAL, request, if_false=1), refuse)
    ]
    program += _looking_at(of.ioctl, 1, typing)
    families = [
        one
        for family in SOCKET_FAMILIES
        for one in (_instruction(_JUMP_EQUAL, family, if_false=1), _return(_ALLOW))
    ]
    program += _looking_at(of.socket, 0, [*families, refuse])
    return b"".join([*program, _return(_ALLOW)])


def _looking_at(call: int, argument: int, checks: list[bytes]) -> list[bytes]:
    """Checks of the lower half of an argument, of one call alone. What passes is allowed."""
    return [
        _instruction(_JUMP_EQUAL, call, if_false=len(checks) + 2),
        _instruction(_LOAD_WORD, _ARGUMENTS_OFFSET + 8 * argument),
        *checks,
        _return(_ALLOW),
    ]


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, operand)


def _return(action: int) -> bytes:
    return _instruction(_RETURN, action)
