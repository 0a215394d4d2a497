"""A connection until its TLS handshake is over: counted, and limited in time, from its first
moment. asyncio's own servers show a connection to its protocol only after the handshake."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from .connections import Connections


class TlsDoor(asyncio.Protocol):
    def __init__(
        self, context: ssl.SSLContext, make: Callable[[], asyncio.Protocol], book: Connections
    ) -> None:
        self._context = context
        self._make = make
        self._book = book
        self._since = book.now
        self._early = b""
        self._handshake: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self.host = ""
        self.user: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._book.admit(self):
            transport.abort()
            return
        transport.pause_reading()  # whatever has come belongs to the handshake
        self._handshake = asyncio.ensure_future(self._shake_hands(transport))

    def data_received(self, data: bytes) -> None:
        """Decrypted, and here before we have been told that the handshake is over."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._book.leave(self)

    # As a guest

    @property
    def is_idle(self) -> bool:
        return True

    def look(self, now: float, idle_seconds: float) -> None:
        if now - self._since > self._book.limits.head_seconds:
            self.drop()

    def drop(self) -> None:
        self._transport.abort()
        if self._handshake is not None:
            self._handshake.cancel()

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._book.limits.head_seconds,
                ssl_shutdown_timeout=self._book.limits.head_seconds,
            )
        except (OSError, asyncio.CancelledError):  # theirs: no TLS, an old one, or gone
            secured = None
        finally:
            self._book.leave(self)
        if secured is None:
            transport.abort()
            return
        protocol = self._make()
        secured.set_protocol(protocol)
        protocol.connection_made(secured)
        if self._early:
            protocol.data_received(self._early)
