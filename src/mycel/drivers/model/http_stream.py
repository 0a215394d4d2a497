"""One HTTP request from the event loop, its body read as it comes.

Only what a model server on the worker's own side needs: HTTP/1.1, one request a connection,
TCP or a Unix socket, chunked or measured bodies, and a limit on everything.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec

from mycel.core.model.failures import MODEL_UPSTREAM

HEAD_BYTES_MAX: Final = 64 << 10
CHUNK_BYTES_MAX: Final = 16 << 20
CONNECT_SECONDS: Final = 5.0
DIGITS_MAX: Final = 18


class EndpointFault(Exception):
    """The server is down, or answers what is no HTTP."""

    def __init__(self, message: str, code: str = MODEL_UPSTREAM) -> None:
        super().__init__(message)
        self.code = code


class Endpoint(msgspec.Struct, frozen=True):
    """`http://host:port/prefix` or `unix:/path/of/socket`."""

    url: str
    key: str = ""
    """Sent as a bearer token, if there is one."""
    prefix: str = ""
    """Of all paths, where a socket cannot say it."""


class Response:
    def __init__(self, status: int, headers: dict[str, str], reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it arrives."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            async for piece in self._chunks():
                yield piece
            return
        length = self.headers.get("content-length", "")
        left = int(length) if _is_number(length) else -1
        while left:
            piece = await self._reader.read(min(CHUNK_BYTES_MAX, left) if left > 0 else 1 << 16)
            if not piece:
                if left > 0:
                    raise EndpointFault("the model server broke its answer off")
                return
            left -= len(piece) if left > 0 else 0
            yield piece

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = await self._reader.readuntil(b"\r\n")
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise EndpointFault("the model server's answer is no HTTP") from None
            if not 0 <= size <= CHUNK_BYTES_MAX:
                raise EndpointFault(f"the model server sends pieces over {CHUNK_BYTES_MAX} bytes")
            piece = await self._reader.readexactly(size + 2)
            if size == 0:
                return
            yield piece[:-2]

    async def body(self, bytes_max: int) -> bytes:
        whole = bytearray()
        async for piece in self.pieces():
            whole += piece
            if len(whole) > bytes_max:
                raise EndpointFault(f"the model server's answer is over {bytes_max} bytes")
        return bytes(whole)

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of the body, without their ends."""
        rest = b""
        async for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            if len(rest) > CHUNK_BYTES_MAX:
                raise EndpointFault("the model server sent an endless line")
            for line in whole:
                yield line.rstrip(b"\r")
        if rest:
            yield rest


@asynccontextmanager
async def request(
    endpoint: Endpoint, method: str, path: str, body: bytes | None = None
) -> AsyncIterator[Response]:
    """The connection is closed when the block is left, however it is left."""
    reader, writer, host, prefix = await _connect(endpoint)
    try:
        writer.write(_head(endpoint, method, prefix + path, host, body) + (body or b""))
        await writer.drain()
        yield await _response(reader)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise EndpointFault(f"the model server broke off: {error}") from error
    finally:
        writer.close()


async def _connect(
    endpoint: Endpoint,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str, str]:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            if endpoint.url.startswith("unix:"):
                reader, writer = await _connect_unix(endpoint.url.removeprefix("unix:"))
                return reader, writer, "localhost", endpoint.prefix
            parts = urlsplit(endpoint.url)
            secure = parts.scheme == "https"
            host, port = parts.hostname or "", parts.port or (443 if secure else 80)
            reader, writer = await asyncio.open_connection(
                host, port, ssl=secure or None, limit=HEAD_BYTES_MAX
            )
            return reader, writer, parts.netloc, parts.path.rstrip("/")
    except (OSError, TimeoutError) as error:
        text = f"the model server at {endpoint.url} does not answer: {error}"
        raise EndpointFault(text) from None


async def _connect_unix(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """However deep the folder lies: the kernel takes no path of more than some 100 bytes. To what
    lies there itself: it may be a task's to change, and a link of its would lead us to any socket
    of this machine."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return await asyncio.open_unix_connection(
            f"/proc/self/fd/{descriptor}", limit=HEAD_BYTES_MAX
        )
    finally:
        os.close(descriptor)


def _head(endpoint: Endpoint, method: str, path: str, host: str, body: bytes | None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    if endpoint.key:
        lines.append(f"Authorization: Bearer {endpoint.key}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode()


async def _response(reader: asyncio.StreamReader) -> Response:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    words = head[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/") or not _is_number(words[1]):
        raise EndpointFault(f"the model server's answer is no HTTP: {head[0][:80]!r}")
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Response(int(words[1]), headers, reader)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
