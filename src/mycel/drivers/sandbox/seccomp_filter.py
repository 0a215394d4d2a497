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

A task that has no namespaces shares the machine's processes and sockets, so `alone` refuses more:

    prlimit64, sched_set…, setpriority, ioprio_set of anybody but the caller ─▶ EPERM
    sockets with an address: of the Unix family never, others only with the network ─▶ EPERM
    signals, where Landlock does not keep them inside ─▶ EPERM
    anything in _SHARED: what belongs to the whole machine, or changes files past Landlock ─▶ EPERM
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final

import msgspec

_LOAD_WORD, _JUMP_EQUAL, _JUMP_ANY_BIT, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_AND: Final = 0x54
_CALL_OFFSET, _ARCHITECTURE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_X32_BIT: Final = 0x40000000
NEW_NAMESPACES: Final = 0x7E020080
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
TYPING_REQUESTS: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX put characters into a terminal as if its user had typed them."""
_UNIX, _IPV4, _IPV6, _NETLINK = 1, 2, 10, 16
SOCKET_FAMILIES: Final = (_UNIX, _IPV4, _IPV6, _NETLINK)
"""The C library asks netlink for the machine's addresses."""
_SOCKET_TYPE_MASK: Final = 0xF
_STREAM, _DATAGRAM, _PACKETS_IN_ORDER = 1, 2, 5
OWNING_REQUESTS: Final = (0x8901, 0x8902)
"""FIOSETOWN and SIOCSPGRP choose who is signalled about a descriptor; so do these of fcntl."""
OWNING_COMMANDS: Final = (8, 10, 15)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX."""


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
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
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


_OF_A_PROCESS: Final[dict[str, tuple[int, int, int]]] = {
    # The two numbers, and which argument names the process: 0 is the caller.
    "ioprio_set": (251, 30, 1),
    "prlimit64": (302, 261, 0),
    "sched_setaffinity": (203, 122, 0),
    "sched_setattr": (314, 274, 0),
    "sched_setparam": (142, 118, 0),
    "sched_setscheduler": (144, 119, 0),
    "setpriority": (141, 140, 1),
}
_ONE_PROCESS: Final = {"ioprio_set": 1, "setpriority": 0}
"""By the first argument these also reach groups and users; this is the one for a process."""
_SHARED: Final[dict[str, tuple[int | None, int | None]]] = {
    # Landlock does not look at owners, modes, attributes, times and watches of files…
    "chmod": (90, None),
    "chown": (92, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "futimesat": (261, None),
    "inotify_add_watch": (254, 27),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "file_setattr": (469, 469),
    "truncate": (76, 45),
    "utime": (132, None),
    "utimes": (235, None),
    # …nor at memory, semaphores and queues that have keys or names.
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
}
_SIGNALS: Final[dict[str, tuple[int, int]]] = {
    "kill": (62, 129),
    "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "tgkill": (234, 131),
    "tkill": (200, 130),
}


class _Architecture(msgspec.Struct, frozen=True):
    column: int
    """In the table above."""
    audit: int
    has_x32: bool
    clone: int
    ioctl: int
    socket: int
    socketpair: int
    fcntl: int
    utimensat: int


_ARCHITECTURES: Final = {
    "x86_64": _Architecture(
        0,
        0xC000003E,
        has_x32=True,
        clone=56,
        ioctl=16,
        socket=41,
        socketpair=53,
        fcntl=72,
        utimensat=280,
    ),
    "aarch64": _Architecture(
        1,
        0xC00000B7,
        has_x32=False,
        clone=220,
        ioctl=29,
        socket=198,
        socketpair=199,
        fcntl=25,
        utimensat=88,
    ),
}


class NoNamespaces(msgspec.Struct, frozen=True):
    """For a task without namespaces."""

    network: bool
    scopes_signals: bool
    """Whether Landlock keeps its signals inside."""


def filter_program(machine: str | None = None, alone: NoNamespaces | None = None) -> bytes | None:
    """The filter for this machine; nothing for architectures whose numbers we do not know."""
    architecture = _ARCHITECTURES.get(machine or platform.machine())
    return None if architecture is None else _assembled(architecture, alone)


def _assembled(of: _Architecture, alone: NoNamespaces | None) -> bytes:
    program = [
        _instruction(_LOAD_WORD, _ARCHITECTURE_OFFSET),
        _instruction(_JUMP_EQUAL, of.audit, if_true=1),
        _return(_KILL),
        _instruction(_LOAD_WORD, _CALL_OFFSET),
    ]
    if of.has_x32:
        program += [_instruction(_JUMP_AT_LEAST, _X32_BIT, if_false=1), _return(_KILL)]
    for number in sorted(_forbidden(of, alone)):
        program += _if(number, _REFUSED)
    program += _if(_CLONE3, _return(_REFUSE | errno.ENOSYS))
    program += _looking_at(
        of.clone, 0, [_instruction(_JUMP_ANY_BIT, NEW_NAMESPACES, if_false=1), _REFUSED]
    )
    is_silent = alone is not None and not alone.scopes_signals
    requests = (*TYPING_REQUESTS, *(OWNING_REQUESTS if is_silent else ()))
    program += _looking_at(of.ioctl, 1, _each(requests, _REFUSED))
    if is_silent:
        program += _looking_at(of.fcntl, 1, _each(OWNING_COMMANDS, _REFUSED))
    program += _socket_checks(of, alone)
    if alone is not None:
        program += _process_checks(of)
        # Of an open file, which has no path here, as `touch` does it.
        no_path = [
            _instruction(_JUMP_EQUAL, 0, if_true=1),
            _REFUSED,
            _instruction(_LOAD_WORD, _ARGUMENTS_OFFSET + 8 + 4),
            _instruction(_JUMP_EQUAL, 0, if_true=1),
            _REFUSED,
        ]
        program += _looking_at(of.utimensat, 1, no_path)
    return b"".join([*program, _ALLOWED])


def _forbidden(of: _Architecture, alone: NoNamespaces | None) -> list[int]:
    here = [numbers[of.column] for numbers in _FORBIDDEN.values()]
    if alone is not None:
        here += [numbers[of.column] for numbers in _SHARED.values()]
    if alone is not None and not alone.scopes_signals:
        here += [numbers[of.column] for numbers in _SIGNALS.values()]
    return [*_SINCE_2011.values(), *(one for one in here if one is not None)]


def _socket_checks(of: _Architecture, alone: NoNamespaces | None) -> list[bytes]:
    """Families, and of IPv4 and IPv6 streams and datagrams: no packets made by hand."""
    families: tuple[int, ...] = SOCKET_FAMILIES
    if alone is not None:
        # Landlock does not know of sockets that have a path: nothing may be connected to one.
        families = (_IPV4, _IPV6, _NETLINK) if alone.network else ()
    plain = tuple(one for one in families if one not in (_IPV4, _IPV6))
    internet = tuple(one for one in families if one in (_IPV4, _IPV6))
    types = [
        _instruction(_LOAD_WORD, _ARGUMENTS_OFFSET + 8),
        _instruction(_AND, _SOCKET_TYPE_MASK),
        *_each((_STREAM, _DATAGRAM), _ALLOWED),
        _REFUSED,
    ]
    checks = _each(plain, _ALLOWED)
    for place, family in enumerate(internet):
        # To the types, over the rest of the families and the refusal of all others.
        over = len(internet) - place
        checks.append(_instruction(_JUMP_EQUAL, family, if_true=over))
    checks.append(_REFUSED)
    program = _looking_at(of.socket, 0, [*checks, *(types if internet else [])])
    if alone is not None:
        # A datagram can be sent to any path from a pair, too.
        masked = [_instruction(_AND, _SOCKET_TYPE_MASK)]
        pairs = [*masked, *_each((_STREAM, _PACKETS_IN_ORDER), _ALLOWED), _REFUSED]
        program += _looking_at(of.socketpair, 1, pairs)
    return program


def _process_checks(of: _Architecture) -> list[bytes]:
    program: list[bytes] = []
    for name, numbers in _OF_A_PROCESS.items():
        checks = [_instruction(_JUMP_EQUAL, 0, if_true=1), _REFUSED]
        if name in _ONE_PROCESS:
            checks += [
                _instruction(_LOAD_WORD, _ARGUMENTS_OFFSET),
                _instruction(_JUMP_EQUAL, _ONE_PROCESS[name], if_true=1),
                _REFUSED,
            ]
        program += _looking_at(numbers[of.column], numbers[2], checks)
    return program


def _if(value: int, then: bytes) -> list[bytes]:
    return [_instruction(_JUMP_EQUAL, value, if_false=1), then]


def _each(values: tuple[int, ...], then: bytes) -> list[bytes]:
    return [one for value in values for one in _if(value, then)]


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


_REFUSED: Final = _return(_REFUSE | errno.EPERM)
_ALLOWED: Final = _return(_ALLOW)
