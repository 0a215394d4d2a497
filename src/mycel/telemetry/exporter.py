"""Metrics over HTTP for roles that have no API: a gateway's, a worker's.

Two routes, `/metrics` and `/healthz`, are a page of code, where the API's server would cost a
worker a third of a second and twenty megabytes. On loopback nobody is asked for a token, as the
owner chose when they set the address; elsewhere the bearer token of any user who may read is.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from collections.abc import Callable
from contextlib import suppress
from typing import Final

HEAD_BYTES_MAX: Final = 16 * 1024
HEAD_SECONDS_MAX: Final = 10.0
IDLE_SECONDS_MAX: Final = 75.0
CONNECTIONS_MAX: Final = 32

Scrape = Callable[[], tuple[bytes, str]]
"""The metrics' text, and its content type."""
Refuse = Callable[[bytes | None], str]
"""Why an `Authorization` header is not good enough; empty if it is."""
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
}


class CannotExport(Exception):
    """Nobody can listen at that address; the message says what to do."""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _BadRequest(Exception):
    pass


class Exporter:
    def __init__(self, scrape: Scrape, refuse: Refuse) -> None:
        """`refuse` is asked only where not everybody is on this machine."""
        self._scrape = scrape
        self._refuse = refuse
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._is_warm = False
        self.address = ""

    async def start(self, host: str, port: int) -> None:
        self._asks = not is_loopback(host)
        try:
            self._server = await asyncio.start_server(
                self._connected, host, port, limit=HEAD_BYTES_MAX
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise CannotExport(
                    f"{host}:{port} is in use by another program: choose another port; 0 picks a "
                    f"free one"
                ) from error
            why = error.strerror or error
            raise CannotExport(f"cannot listen on {host}:{port}: {why}") from error
        bound = self._server.sockets[0].getsockname()
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        self.address = f"http://{shown}:{bound[1]}/metrics"

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if len(self._clients) <= CONNECTIONS_MAX:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # it has gone, says nothing, or this node stops
        finally:
            self._clients.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(IDLE_SECONDS_MAX):
                first = await reader.readexactly(1)
            try:
                async with asyncio.timeout(HEAD_SECONDS_MAX):
                    method, path, headers = await _head(reader, first)
            except (_BadRequest, asyncio.LimitOverrunError):
                _answer(writer, 400, b"this is no request that is understood here\n", keep=False)
                await writer.drain()
                return
            keep = headers.get(b"connection", b"").lower() != b"close"
            await self._respond(writer, method, path, headers, keep)
            await writer.drain()
            if not keep:
                return

    async def _respond(
        self,
        writer: asyncio.StreamWriter,
        method: bytes,
        path: bytes,
        headers: dict[bytes, bytes],
        keep: bool,
    ) -> None:
        empty = method == b"HEAD"
        if method not in (b"GET", b"HEAD"):
            _answer(writer, 405, b"only GET and HEAD\n", keep=keep, more=b"Allow: GET, HEAD\r\n")
        elif path == b"/healthz":
            _answer(writer, 200, b"ok\n", keep=keep, empty=empty)
        elif path != b"/metrics":
            _answer(writer, 404, b"there are /metrics and /healthz\n", keep=keep, empty=empty)
        elif reason := self._refuse(headers.get(b"authorization")) if self._asks else "":
            challenge = b'WWW-Authenticate: Bearer realm="mycel"\r\n'
            text = f"{reason}\n".encode()
            _answer(writer, 401, text, keep=keep, empty=empty, more=challenge)
        else:
            if not self._is_warm:  # the loop has other things to do meanwhile
                await asyncio.to_thread(_import_library)
                self._is_warm = True
            text, kind = self._scrape()
            _answer(writer, 200, text, keep=keep, empty=empty, kind=kind)


def _import_library() -> None:
    import prometheus_client  # noqa: F401 - for its effect


async def _head(
    reader: asyncio.StreamReader, first: bytes
) -> tuple[bytes, bytes, dict[bytes, bytes]]:
    head = first + await reader.readuntil(b"\r\n\r\n")
    line, *lines = head[:-4].split(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise _BadRequest
    headers = {}
    for one in lines:
        name, colon, value = one.partition(b":")
        if not colon:
            raise _BadRequest
        headers[name.strip().lower()] = value.strip()
    if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
        raise _BadRequest  # nothing here takes a body
    return words[0], words[1].partition(b"?")[0], headers


def _answer(
    writer: asyncio.StreamWriter,
    status: int,
    text: bytes,
    *,
    keep: bool,
    empty: bool = False,
    kind: str = "text/plain; charset=utf-8",
    more: bytes = b"",
) -> None:
    connection = "keep-alive" if keep else "close"
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(text)}\r\nConnection: {connection}\r\n"
    )
    writer.write(head.encode() + more + b"\r\n" + (b"" if empty else text))
