"""A seccomp filter: what the kernel refuses a confined task, whatever else it may do.

The filter is a program of the classic Berkeley packet filter, eight bytes an instruction,
written here as bytes; the launcher loads it last of all. It forbids by name and lets the rest
pass: tasks are programs of all kinds, and the walls are namespaces, ids and mounts. What is
forbidden are the ways to dig: other processes' memory, mounts, namespaces, keys, kernel code,
and calls with a long history of holes.

    wrong architecture, or x32 ─▶ the process is killed
    clone3 ─▶ "no such call": the C library then takes clone, whose flags can be seen
    clone with new namespaces, ioctl that types for others, sockets of odd families ─▶ EPERM
    anything in FORBIDDEN ─▶ EPERM
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


class _Architecture(msgspec.Struct, frozen=True):
    audit: int
    has_x32: bool
    clone: int
    clone3: int
    ioctl: int
    socket: int
    forbidden: dict[str, int]


_COMMON: Final = {
    # The same number everywhere, as all calls since 2011.
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
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
}
_X86_64: Final = _Architecture(
    audit=0xC000003E,
    has_x32=True,
    clone=56,
    clone3=435,
    ioctl=16,
    socket=41,
    forbidden={
        **_COMMON,
        "ptrace": 101,
        "syslog": 103,
        "ustat": 136,
        "sysfs": 139,
        "vhangup": 153,
        "modify_ldt": 154,
        "pivot_root": 155,
        "sysctl": 156,
        "chroot": 161,
        "acct": 163,
        "settimeofday": 164,
        "mount": 165,
        "umount2": 166,
        "swapon": 167,
        "swapoff": 168,
        "reboot": 169,
        "iopl": 172,
        "ioperm": 173,
        "create_module": 174,
        "init_module": 175,
        "delete_module": 176,
        "query_module": 178,
        "quotactl": 179,
        "nfsservctl": 180,
        "lookup_dcookie": 212,
        "clock_settime": 227,
        "vserver": 236,
        "kexec_load": 246,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "migrate_pages": 256,
        "mknodat": 259,
        "mknod": 133,
        "unshare": 272,
        "move_pages": 279,
        "perf_event_open": 298,
        "fanotify_init": 300,
        "name_to_handle_at": 303,
        "open_by_handle_at": 304,
        "clock_adjtime": 305,
        "setns": 308,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "kcmp": 312,
        "finit_module": 313,
        "kexec_file_load": 320,
        "bpf": 321,
        "userfaultfd": 323,
    },
)
_AARCH64: Final = _Architecture(
    audit=0xC00000B7,
    has_x32=False,
    clone=220,
    clone3=435,
    ioctl=29,
    socket=198,
    forbidden={
        **_COMMON,
        "lookup_dcookie": 18,
        "mknodat": 33,
        "umount2": 39,
        "mount": 40,
        "pivot_root": 41,
        "nfsservctl": 42,
        "chroot": 51,
        "vhangup": 58,
        "quotactl": 60,
        "acct": 89,
        "unshare": 97,
        "kexec_load": 104,
        "init_module": 105,
        "delete_module": 106,
        "clock_settime": 112,
        "syslog": 116,
        "ptrace": 117,
        "reboot": 142,
        "settimeofday": 170,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "swapon": 224,
        "swapoff": 225,
        "migrate_pages": 238,
        "move_pages": 239,
        "perf_event_open": 241,
        "fanotify_init": 262,
        "name_to_handle_at": 264,
        "open_by_handle_at": 265,
        "clock_adjtime": 266,
        "setns": 268,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "kcmp": 272,
        "finit_module": 273,
        "bpf": 280,
        "userfaultfd": 282,
        "kexec_file_load": 294,
    },
)
_ARCHITECTURES: Final = {"x86_64": _X86_64, "aarch64": _AARCH64}


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
    for number in sorted(of.forbidden.values()):
        program += [_instruction(_JUMP_EQUAL, number, if_false=1), refuse]
    no_such_call = _return(_REFUSE | errno.ENOSYS)
    program += [_instruction(_JUMP_EQUAL, of.clone3, if_false=1), no_such_call]
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
