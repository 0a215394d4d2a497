"""Takes connections for TLS: each is counted, and limited in time, from its first moment. The
loop's own servers show a connection to its protocol only when the handshake is over."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from .certificates import Certificate
from .connections import Connections

ACCEPT_PAUSE_SECONDS: Final = 1.0
"""Without a file descriptor for another connection, those that wait wait so long."""


class TlsServer:
    """As far as uvicorn knows, one of the loop's own servers."""

    def __init__(
        self,
        bound: socket.socket,
        certificate: Certificate,
        make: Callable[[], asyncio.Protocol],
        book: Connections,
    ) -> None:
        bound.setblocking(False)
        self._bound = bound
        self._certificate = certificate
        self._make = make
        self._book = book
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept(), name="api: accept")

    def close(self) -> None:
        self._accepting.cancel()
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait((self._accepting, *self._handshakes))

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._bound)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            guest = _Handshake(connection, str(address[0]), self._book)
            if not self._book.admit(guest):
                connection.close()
                continue
            task = asyncio.create_task(self._shake_hands(guest, connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, guest: _Handshake, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds = self._book.limits.head_seconds

        def make() -> asyncio.Protocol:
            return _Relay(self._make(), guest, self._book)

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                make,
                connection,
                ssl=self._certificate.context,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except (OSError, asyncio.CancelledError):  # no TLS, an old one, or gone
            guest.drop()
        finally:
            self._book.leave(guest)


class _Relay(asyncio.Protocol):
    """Gives the handshake's place to the protocol that comes after it, in one step."""

    def __init__(self, protocol: asyncio.Protocol, guest: _Handshake, book: Connections) -> None:
        self._protocol = protocol
        self._guest = guest
        self._book = book

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._book.leave(self._guest)
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(transport)


class _Handshake:
    """A guest until the handshake is over."""

    def __init__(self, connection: socket.socket, host: str, book: Connections) -> None:
        self._connection = connection
        self._book = book
        self._since = book.now
        self.host = host
        self.user: str | None = None
        self.is_idle = True

    def look(self, now: float, idle_seconds: float) -> None:
        if now - self._since > self._book.limits.head_seconds:
            self.drop()

    def drop(self) -> None:
        """Its transport hears of it, and closes the socket."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
