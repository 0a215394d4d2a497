"""A knock: one packet to a node's QUIC port and one back, without a connection.

Whoever serves QUIC answers a packet of a version that it does not speak with the versions that
it does (RFC 9000, section 6), and keeps nothing of it. The node's own thread does so: an answer
says that a process is awake at that address. Which one it does not say, that takes a hello.

One socket serves every knock, and neither side has more than two packets to deal with, where a
connection costs both some milliseconds of handshakes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Sequence
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.runtime.clock import boot_seconds

PLACES_MAX: Final = 4
"""So many addresses of one peer are knocked at."""
OPEN_MAX: Final = 16_384
"""Knocks that may still be answered; the oldest are forgotten."""
PACKET_BYTES: Final = 1200
"""A shorter one is not answered: it could serve to flood others."""
UNSPOKEN_VERSION: Final = b"\x1a\x2a\x3a\x4a"
"""Of those that are set aside so that nobody ever speaks them."""
ID_BYTES: Final = 8
READS_MAX: Final = 256
"""Answers read before the loop gets its turn again."""

_QUIC: Final = re.compile(r"^/ip([46])/([^/]+)/udp/(\d+)/quic-v1(?:/p2p/[^/]+)?$")
_BLANK: Final = b"\xc0" + UNSPOKEN_VERSION + bytes([ID_BYTES])


def places(addresses: Sequence[str]) -> list[tuple[socket.AddressFamily, str, int]]:
    """Where a knock can go: the direct QUIC addresses."""
    found = []
    for address in addresses:
        parts = _QUIC.match(address)
        if parts is None:
            continue
        version, host, port = parts.groups()
        try:
            ipaddress.ip_address(host)
        except ValueError:
            continue  # what others say of their addresses may be anything
        if 0 < int(port) < 1 << 16:
            family = socket.AF_INET if version == "4" else socket.AF_INET6
            found.append((family, host, int(port)))
    return found[:PLACES_MAX]


def answered_id(packet: bytes) -> bytes:
    """Which knock this answers; empty if it is no answer."""
    is_answer = len(packet) > 6 + ID_BYTES and packet[0] & 0x80 and packet[1:5] == bytes(4)
    return packet[6 : 6 + ID_BYTES] if is_answer and packet[5] == ID_BYTES else b""


class QuicProber:
    """Owns the sockets, which are opened by the first knock."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, knocked: Callable[[PeerId, float], None]
    ) -> None:
        self._loop = loop
        self._knocked = knocked
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        self._open: dict[bytes, tuple[PeerId, float]] = {}

    def knock(self, peer: PeerId, addresses: Sequence[str]) -> bool:
        """False if none of its addresses can be knocked at."""
        found = places(addresses)
        if not found:
            return False
        own = os.urandom(ID_BYTES)
        while len(self._open) >= OPEN_MAX:
            del self._open[next(iter(self._open))]
        self._open[own] = (peer, boot_seconds())
        packet = _BLANK + os.urandom(ID_BYTES) + bytes([ID_BYTES]) + own
        packet = packet.ljust(PACKET_BYTES, b"\0")
        for family, host, port in found:
            try:
                self._socket(family).sendto(packet, (host, port))
            except OSError:
                continue  # no way there, or no room: it is as if it was lost on the way
        return True

    def close(self) -> None:
        for own in self._sockets.values():
            self._loop.remove_reader(own.fileno())
            own.close()
        self._sockets.clear()
        self._open.clear()

    def _socket(self, family: socket.AddressFamily) -> socket.socket:
        own = self._sockets.get(family)
        if own is None:
            own = socket.socket(family, socket.SOCK_DGRAM)
            own.setblocking(False)
            self._sockets[family] = own
            self._loop.add_reader(own.fileno(), self._read, own)
        return own

    def _read(self, own: socket.socket) -> None:
        for _ in range(READS_MAX):
            try:
                packet = own.recv(PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                continue  # a machine says that nobody listens there: silence says so too
            knock = self._open.pop(answered_id(packet), None)
            if knock is not None:
                peer, sent_at = knock
                self._knocked(peer, boot_seconds() - sent_at)
