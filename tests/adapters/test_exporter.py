"""Metrics of roles without an API: a small server that nobody can keep busy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mycel.telemetry import exporter as module
from mycel.telemetry.exporter import CannotExport, Exporter, is_loopback

TEXT = b"mycel_swarm_streams 3.0\n"


def run(
    use: Callable[[Exporter, int], Awaitable[None]],
    host: str = "127.0.0.1",
    refuse: Callable[[bytes | None], str] = lambda header: "nobody",
) -> None:
    async def main() -> None:
        exporter = Exporter(lambda: (TEXT, "text/plain"), refuse)
        await exporter.start(host, 0)
        try:
            port = int(exporter.address.rpartition(":")[2].partition("/")[0])
            await asyncio.wait_for(use(exporter, port), 30)
        finally:
            await exporter.stop()

    asyncio.run(main())


async def send(port: int, *requests: bytes) -> bytes:
    """All that comes back until the other end hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(requests))
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def request(line: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([line + b" HTTP/1.1", *headers, b"Connection: close", b"", b""])


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (request(b"GET /metrics"), b"HTTP/1.1 200 OK"),
        (request(b"GET /metrics?name=x"), b"HTTP/1.1 200 OK"),
        (request(b"GET /healthz"), b"HTTP/1.1 200 OK"),
        (request(b"GET /"), b"HTTP/1.1 404 Not Found"),
        (request(b"DELETE /metrics"), b"HTTP/1.1 405 Method Not Allowed"),
        (request(b"POST /metrics", b"Content-Length: 3") + b"abc", b"HTTP/1.1 400 Bad Request"),
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nno header\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"x" * (module.HEAD_BYTES_MAX + 100), b"HTTP/1.1 400 Bad Request"),
    ],
)
def test_each_request_has_its_answer(asked: bytes, answered: bytes) -> None:
    async def use(_: Exporter, port: int) -> None:
        assert (await send(port, asked)).splitlines()[0] == answered

    run(use)


def test_one_connection_serves_many_requests() -> None:
    async def use(_: Exporter, port: int) -> None:
        answer = await send(
            port,
            b"GET /metrics HTTP/1.1\r\n\r\n",
            b"HEAD /metrics HTTP/1.1\r\n\r\n",
            request(b"GET /metrics"),
        )
        assert answer.count(b"HTTP/1.1 200 OK") == 3
        assert answer.count(TEXT) == 2, "a HEAD has no body"

    run(use)


def test_beyond_this_machine_a_token_is_needed() -> None:
    def refuse(header: bytes | None) -> str:
        return "" if header == b"Bearer good" else "send a token"

    async def use(_: Exporter, port: int) -> None:
        refused = await send(port, request(b"GET /metrics"))
        assert refused.startswith(b"HTTP/1.1 401 Unauthorized")
        assert b'WWW-Authenticate: Bearer realm="mycel"' in refused
        assert b"send a token" in refused
        assert TEXT not in refused
        assert TEXT in await send(port, request(b"GET /metrics", b"Authorization: Bearer good"))

    run(use, host="0.0.0.0", refuse=refuse)


def test_too_many_connections_are_cut_off_and_do_no_harm() -> None:
    async def use(_: Exporter, port: int) -> None:
        held = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(module.CONNECTIONS_MAX)
        ]
        while await send(port, request(b"GET /healthz")):
            pass  # not all of them are counted yet
        for _reader, held_open in held:
            held_open.close()
        while not await send(port, request(b"GET /healthz")):
            pass

    run(use)


def test_a_port_in_use_says_what_to_do() -> None:
    async def use(exporter: Exporter, port: int) -> None:
        other = Exporter(lambda: (TEXT, "text/plain"), lambda header: "")
        with pytest.raises(CannotExport, match="in use by another program"):
            await other.start("127.0.0.1", port)

    run(use)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.0.1", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org")),
    ],
)
def test_which_addresses_are_of_this_machine_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected
