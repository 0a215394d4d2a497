"""The forward proxy of a build: its only way to the network.

    build ─ loopback ─ relay ─ Unix socket ─▶ this ─┬─▶ a public address, or an allowed one
            (in the sandbox)                        └─▶ the owner's own proxy, if there is one

Names are resolved here, each address is checked (`public_addresses`), and the connection goes to
the very address that was checked: what a name means a moment later does not matter. A redirect is
a new request, and is checked like the first. Every byte counts against the build's quota.

The owner's own proxy resolves names itself. What it is asked for is checked here all the same, as
far as the name is known here; what it reaches beyond that is its own rule.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import os
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from mycel.config.build_addresses import PORT_MAX, Address, Allowance
from mycel.core.model.resources import size

from .public_addresses import refusal

CHUNK_BYTES: Final = 1 << 18
HEAD_BYTES_MAX: Final = 64 << 10
CONNECTIONS_MAX: Final = 128
CONNECT_SECONDS: Final = 30.0
IDLE_SECONDS: Final = 120.0
"""A connection on which nothing moves for so long is closed."""
LOOKUPS_MAX: Final = 8
"""Names that are looked up at once, by all builds of a worker."""
REFUSALS_KEPT: Final = 5
_DROPPED: Final = ("proxy-connection", "proxy-authorization", "connection", "keep-alive")

_PHRASES: Final = {
    400: "Bad Request",
    403: "Forbidden",
    407: "Proxy Authentication Required",
    502: "Bad Gateway",
}

_lookups = threading.BoundedSemaphore(LOOKUPS_MAX)


class Refused(Exception):
    """The build may not have that; the message says why."""


class Target(msgspec.Struct, frozen=True):
    host: str
    port: int


class Upstream(msgspec.Struct, frozen=True):
    """A proxy that the owner has set."""

    host: str
    port: int
    tls: bool = False
    authorization: str = ""


class Upstreams(msgspec.Struct, frozen=True):
    """The owner's proxies by scheme, and the hosts that need none."""

    by_scheme: dict[str, Upstream] = {}
    without: tuple[str, ...] = ()

    def of(self, scheme: str, host: str) -> Upstream | None:
        name = host.lower()
        for one in self.without:
            suffix = one.lower().lstrip("*").lstrip(".")
            if one == "*" or (suffix and (name == suffix or name.endswith(f".{suffix}"))):
                return None
        return self.by_scheme.get(scheme) or self.by_scheme.get("all")


def upstreams_of(environment: Mapping[str, str]) -> Upstreams:
    """Raises ValueError for a proxy that cannot be chained."""
    found: dict[str, Upstream] = {}
    for scheme in ("http", "https", "all"):
        name = f"{scheme}_proxy"
        url = environment.get(name) or environment.get(name.upper()) or ""
        if url:
            found[scheme] = _upstream(name.upper(), url)
    without = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return Upstreams(found, tuple(one.strip() for one in without.split(",") if one.strip()))


def _upstream(variable: str, url: str) -> Upstream:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"{variable} is no http:// or https:// proxy, and others cannot be used for builds"
        )
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    tls = parts.scheme == "https"
    return Upstream(parts.hostname, parts.port or (443 if tls else 80), tls, authorization)


class ForwardProxy:
    """Of one build. `exceeded` is called once, when its quota is used up."""

    def __init__(
        self,
        allowed: tuple[Allowance, ...],
        upstreams: Upstreams,
        bytes_max: int,
        exceeded: Callable[[], None],
    ) -> None:
        self._allowed = allowed
        self._upstreams = upstreams
        self._bytes_max = bytes_max
        self._exceeded = exceeded
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)
        self._authorization = ""
        """What a client has to say; empty is nothing."""
        self.bytes_count = 0
        self.refusals: list[str] = []
        """The first few, in words."""

    async def listen(self, path: str) -> None:
        self._server = await asyncio.start_unix_server(self._connected, path, limit=HEAD_BYTES_MAX)
        os.chmod(path, 0o666)  # noqa: PTH101, S103 - the sandbox says who sees it

    async def listen_here(self) -> str:
        """On loopback, for a build that shares the machine's network: its URL, with a password
        that nobody else on the machine knows."""
        password = secrets.token_urlsafe(24)
        pair = base64.b64encode(f"build:{password}".encode()).decode()
        self._authorization = f"Basic {pair}"
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, limit=HEAD_BYTES_MAX
        )
        port = self._server.sockets[0].getsockname()[1]
        return f"http://build:{password}@127.0.0.1:{port}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            async with self._turns:
                await self._serve(reader, writer)
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.CancelledError):
            pass  # the other end has gone, speaks no HTTP, or we are to end
        finally:
            self._serving.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
            method, place, version = first.split(" ")
            if self._authorization and not _says(lines, self._authorization):
                await _answer(writer, 407, "this proxy is for a build alone")
                return
            scheme, target, path = _target(method, place)
            upstream = self._upstreams.of(scheme, target.host)
            addresses = await self._checked(target, is_chained=upstream is not None)
            if upstream is None:
                to_reader, to_writer = await _connect(target.port, addresses)
            else:
                to_reader, to_writer = await _connect_upstream(upstream)
        except Refused as refused:
            self._note(str(refused))
            await _answer(writer, 403, str(refused))
            return
        except ValueError:
            await _answer(writer, 400, "this is a forward proxy: CONNECT, or GET http://…")
            return
        except (OSError, TimeoutError) as error:
            await _answer(writer, 502, f"no connection to {target.host}: {error}")
            return
        try:
            if upstream is not None:
                to_writer.write(_chained_head(first, lines, upstream))
            elif method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                to_writer.write(_origin_head(f"{method} {path} {version}", lines))
            await self._tunnel(reader, writer, to_reader, to_writer)
        finally:
            to_writer.transport.abort()

    async def _checked(self, target: Target, *, is_chained: bool) -> list[Address]:
        """Its addresses, all of them allowed. Raises `Refused`."""
        try:
            addresses = await _resolved(target.host)
        except OSError:
            if is_chained:
                return []  # the owner's proxy may know the name
            raise
        for address in addresses:
            why = refusal(target.host, address, target.port, self._allowed)
            if why:
                raise Refused(
                    f"{target.host}:{target.port} is not for builds: {why}; the worker's owner can "
                    "allow it by [worker.environments] allow_addresses"
                )
        return addresses

    def _note(self, refused: str) -> None:
        if refused not in self.refusals and len(self.refusals) < REFUSALS_KEPT:
            self.refusals.append(refused)

    async def _tunnel(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_reader: asyncio.StreamReader,
        to_writer: asyncio.StreamWriter,
    ) -> None:
        up = asyncio.create_task(self._pump(reader, to_writer))
        try:
            await self._pump(to_reader, writer)
            await _drained(writer)
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            while True:
                async with asyncio.timeout(IDLE_SECONDS):
                    data = await reader.read(CHUNK_BYTES)
                    if not data:
                        break
                    self._count(len(data))
                    writer.write(data)
                    await writer.drain()
            writer.write_eof()

    def _count(self, count: int) -> None:
        before = self.bytes_count
        self.bytes_count += count
        if self.bytes_count > self._bytes_max:
            if before <= self._bytes_max:
                self._exceeded()
            raise ConnectionAbortedError(f"more than {size(self._bytes_max)}")


def _target(method: str, place: str) -> tuple[str, Target, str]:
    """Scheme, host with port, and what to ask the host for. Raises ValueError."""
    if method == "CONNECT":
        parts = urlsplit(f"//{place}")
        scheme, port, path = "https", parts.port, ""
    else:
        parts = urlsplit(place)
        if parts.scheme != "http":
            raise ValueError(place)
        scheme, port = "http", parts.port or 80
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not parts.hostname or port is None or not 0 < port <= PORT_MAX:
        raise ValueError(place)
    return scheme, Target(parts.hostname, port), path


def _says(lines: list[str], authorization: str) -> bool:
    fields = (line.partition(":") for line in lines)
    said = [v.strip() for name, _, v in fields if name.strip().lower() == "proxy-authorization"]
    return any(secrets.compare_digest(one.encode(), authorization.encode()) for one in said)


def _origin_head(first: str, lines: list[str]) -> bytes:
    kept = [line for line in lines if line.partition(":")[0].strip().lower() not in _DROPPED]
    return "\r\n".join([first, *kept, "Connection: close", "", ""]).encode("latin-1")


def _chained_head(first: str, lines: list[str], upstream: Upstream) -> bytes:
    kept = [line for line in lines if line.partition(":")[0].strip().lower() not in _DROPPED]
    if upstream.authorization:
        kept.append(f"Proxy-Authorization: {upstream.authorization}")
    if not first.startswith("CONNECT "):
        kept.append("Connection: close")
    return "\r\n".join([first, *kept, "", ""]).encode("latin-1")


async def _connect(
    port: int, addresses: list[Address]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The first of these addresses that answers."""
    failure: Exception = OSError("it has no address")
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(str(address), port, limit=CHUNK_BYTES)
        except (OSError, TimeoutError) as error:
            failure = error
    raise failure


async def _connect_upstream(
    upstream: Upstream,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context() if upstream.tls else None
    async with asyncio.timeout(CONNECT_SECONDS):
        return await asyncio.open_connection(
            upstream.host, upstream.port, ssl=context, limit=CHUNK_BYTES
        )


async def _resolved(host: str) -> list[Address]:
    """In a thread of its own that nobody waits for: a server for names may never answer."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[Address]] = loop.create_future()

    def tell(result: list[Address] | Exception) -> None:
        if found.done():
            return
        if isinstance(result, Exception):
            found.set_exception(result)
        else:
            found.set_result(result)

    def look_up() -> None:
        try:
            result: list[Address] | Exception = _addresses_of(host)
        except Exception as error:  # noqa: BLE001 - the edge of a thread: told to who asked
            result = error
        finally:
            _lookups.release()
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(partial(tell, result))

    async with asyncio.timeout(CONNECT_SECONDS):
        while not _lookups.acquire(blocking=False):  # noqa: ASYNC110 - threads release it
            await asyncio.sleep(0.05)
        threading.Thread(target=look_up, daemon=True, name="mycel-lookup").start()
        return await found


def _addresses_of(host: str) -> list[Address]:
    listed: list[tuple[Any, ...]] = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    texts = dict.fromkeys(str(one[4][0]) for one in listed)
    return [ipaddress.ip_address(text) for text in texts]


async def _answer(writer: asyncio.StreamWriter, status: int, detail: str) -> None:
    phrase = _PHRASES[status]
    body = f"{detail}\n".encode()
    head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await _drained(writer)


async def _drained(writer: asyncio.StreamWriter) -> None:
    """Afterwards the kernel has all of it, and the writer may be aborted."""
    with contextlib.suppress(OSError):
        writer.transport.set_write_buffer_limits(high=0)
        async with asyncio.timeout(CONNECT_SECONDS):
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
