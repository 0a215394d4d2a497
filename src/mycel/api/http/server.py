"""Serves the application with uvicorn, on a socket that is bound before anything starts."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Final

import uvicorn

from mycel.api.app import create_app
from mycel.api.authentication import Authenticator
from mycel.api.backend import Backend
from mycel.api.express import ExpressProtocol

from .caller_limits import Limits
from .certificates import Certificate
from .connections import Connections
from .tls_server import TlsServer

BACKLOG: Final = 2048
SWEEP_TICKS: Final = 10


class PortInUse(Exception):
    """Somebody else listens there: choose another port, or stop them."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"{host}:{port} is in use by another program; stop it, or choose another port "
            f"(--port 0 picks a free one)"
        )
        self.host = host
        self.port = port


class CannotBind(Exception):
    """The address is not one of this machine's, or not for us to use."""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, not listening yet; port 0 picks a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY; else each answer waits 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        # Two sockets may be bound to one port until one of them listens.
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from error
        raise CannotBind(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return bound


class _Uvicorn(uvicorn.Server):
    """Without the handling of signals, which is the role's business."""

    def __init__(
        self, config: uvicorn.Config, book: Connections, certificate: Certificate | None
    ) -> None:
        super().__init__(config)
        self._book = book
        self._certificate = certificate

    async def start(self, bound: socket.socket) -> None:
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        if self._certificate is None:
            loop = asyncio.get_running_loop()
            self.servers = [await loop.create_server(self._protocol, sock=bound, backlog=BACKLOG)]
        else:
            secure = TlsServer(bound, self._certificate, self._protocol, self._book)
            self.servers = [secure]  # type: ignore[list-item]
        self.started = True

    async def answer_until_stopped(self, bound: socket.socket) -> None:
        await self.main_loop()
        await self.shutdown(sockets=[bound])

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % SWEEP_TICKS == 0:
            self._book.sweep()
            if self._certificate is not None:
                self._certificate.look(self._book.now)
        return await super().on_tick(counter)

    def _protocol(self) -> asyncio.Protocol:
        return ExpressProtocol(self.config, self.server_state, {}, book=self._book)


class ApiServer:
    """A running server. Whoever started it stops it."""

    def __init__(
        self,
        server: _Uvicorn,
        task: asyncio.Task[None],
        bound: socket.socket,
        certificate: Certificate | None,
    ) -> None:
        self._server = server
        self._task = task
        self._bound = bound
        self.certificate = certificate
        self.host, self.port = bound.getsockname()[:2]

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"

    async def stop(self) -> None:
        """Takes nothing new, lets what is under way end for a few seconds."""
        self._server.should_exit = True
        await self._task
        self._bound.close()

    async def failed(self) -> None:
        """Returns, or raises what ended it, when the server ends on its own."""
        await asyncio.shield(self._task)


async def serve(
    backend: Backend,
    authenticator: Authenticator,
    bound: socket.socket,
    limits: Limits | None = None,
    *,
    grace_seconds: int = 5,
    certificate: Certificate | None = None,
) -> ApiServer:
    """Serves on a socket from `bind`; returns once connections are answered."""
    limits = limits or Limits()
    config = uvicorn.Config(
        create_app(backend, authenticator, limits),
        http=ExpressProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace_seconds,
        backlog=BACKLOG,
    )
    server = _Uvicorn(config, Connections(limits), certificate)
    await server.start(bound)
    task = asyncio.create_task(server.answer_until_stopped(bound), name="api")
    return ApiServer(server, task, bound, certificate)
