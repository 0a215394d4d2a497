"""Attempts to reach others: loopback, link-local addresses, sockets without an address."""

from __future__ import annotations

from mycel.drivers.interface import Finished

from .attack import Attack, Scene


def _called(scene: Scene, _end: Finished) -> bool:
    return scene.was_called()


ATTACKS = [
    Attack(
        "calls a server on this machine",
        'import socket\nsocket.create_connection(("127.0.0.1", scene["port"]), 5)',
        _called,
    ),
    Attack(
        "calls a server by another name of loopback",
        'import socket\nsocket.create_connection(("::ffff:127.0.0.1", scene["port"]), 5)',
        _called,
    ),
    Attack(
        "sends a datagram to this machine",
        "import socket\n"
        "out = socket.socket(type=socket.SOCK_DGRAM)\n"
        'out.sendto(b"x", ("127.0.0.1", scene["datagram_port"]))',
        _called,
    ),
    Attack(
        "has a way to link-local addresses",
        "import socket\n"
        "out = socket.socket(type=socket.SOCK_DGRAM)\n"
        'out.connect(("169.254.169.254", 80))\n'
        "escaped()",
    ),
    Attack(
        "has a way to the world",
        "import socket\n"
        "out = socket.socket(type=socket.SOCK_DGRAM)\n"
        'out.connect(("192.0.2.77", 9))\n'
        "escaped()",
    ),
    Attack(
        "calls an abstract socket",
        'import socket\nsocket.socket(socket.AF_UNIX).connect("\\0" + scene["abstract"])',
        _called,
    ),
    Attack(
        "calls a socket outside of its folder",
        'import socket\nsocket.socket(socket.AF_UNIX).connect(scene["outside"] + "/socket")',
        _called,
    ),
    Attack(
        "sees the machine's network devices",
        "import socket\nescaped(len(socket.if_nameindex()) > 1)",
    ),
    Attack(
        "listens to all packets",
        "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)\nescaped()",
    ),
    Attack(
        "makes packets by hand",
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\nescaped()",
    ),
    Attack(
        "borrows the kernel's ciphers",
        "import socket\nsocket.socket(38, socket.SOCK_SEQPACKET)\nescaped()",
        no_control="not every kernel lends them",
    ),
]
