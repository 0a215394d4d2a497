"""The forward proxy of builds, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mycel.config.build_addresses import Allowance, parse_allowance
from mycel.drivers.environments.forward_proxy import ForwardProxy, Upstreams, upstreams_of

HERE = (parse_allowance("127.0.0.1"),)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def ask(
    folder: Path,
    head: str,
    *,
    allowed: tuple[Allowance, ...] = (),
    upstreams: Upstreams | None = None,
    bytes_max: int = 1 << 30,
) -> tuple[bytes, ForwardProxy, list[str]]:
    """All that a client gets for this head, and who was told of the quota."""
    told: list[str] = []
    proxy = ForwardProxy(
        allowed, upstreams or Upstreams(), bytes_max, lambda: told.append("exceeded")
    )
    path = str(folder / "proxy")
    await proxy.listen(path)
    try:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(f"{head}\r\nUser-Agent: test\r\n\r\n".encode())
        async with asyncio.timeout(20):
            answer = await reader.read(-1)
        writer.close()
        return answer, proxy, told
    finally:
        await proxy.close()


async def serving(serve: Serve) -> tuple[asyncio.Server, int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def answering(heads: list[bytes], body: bytes = b"hello") -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        length = f"Content-Length: {len(body)}".encode()
        writer.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n" + body)
        writer.close()

    return serve


@pytest.mark.parametrize(
    "form", ["GET http://127.0.0.1:{}/a?b=c HTTP/1.1", "CONNECT 127.0.0.1:{} X"]
)
def test_a_request_reaches_what_is_allowed_and_nothing_else(form: str, tmp_path: Path) -> None:
    async def play() -> None:
        heads: list[bytes] = []
        server, port = await serving(answering(heads))
        async with server:
            answer, proxy, _ = await ask(tmp_path, form.format(port))
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert b"loopback" in answer
            assert proxy.refusals
            assert heads == []
            if form.startswith("GET"):
                answer, _, _ = await ask(tmp_path, form.format(port), allowed=HERE)
                assert answer.endswith(b"\r\n\r\nhello")
                assert heads[0].startswith(b"GET /a?b=c HTTP/1.1\r\n")

    asyncio.run(play())


@pytest.mark.parametrize(
    "head",
    ["nonsense", "GET /path HTTP/1.1", "GET ftp://a/ HTTP/1.1", "CONNECT a:0 X", "CONNECT a X"],
)
def test_what_is_no_request_for_a_proxy_is_refused(head: str, tmp_path: Path) -> None:
    answer, _, _ = asyncio.run(ask(tmp_path, head))
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::1", "8.8.8.8"]])
def test_a_name_of_a_private_address_is_refused(
    addresses: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mycel.drivers.environments.forward_proxy.socket.getaddrinfo",
        lambda *_, **__: [(0, 0, 0, "", (one, 0)) for one in addresses],
    )
    answer, _, _ = asyncio.run(ask(tmp_path, "CONNECT some.host:443 HTTP/1.1"))
    assert answer.startswith(b"HTTP/1.1 403 ")


def test_a_name_that_changes_its_address_is_connected_to_the_one_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    real = socket.getaddrinfo

    def changing(host: str, *rest: Any, **options: Any) -> Any:
        if host != "some.host":
            return real(host, *rest, **options)
        names.append(host)
        return [(0, 0, 0, "", ("127.0.0.2" if len(names) == 1 else "127.0.0.1", 0))]

    monkeypatch.setattr("socket.getaddrinfo", changing)

    async def play() -> None:
        heads: list[bytes] = []
        server, port = await serving(answering(heads))
        async with server:
            head = f"GET http://some.host:{port}/ HTTP/1.1"
            allowed = (parse_allowance("127.0.0.2"),)
            answer, _, _ = await ask(tmp_path, head, allowed=allowed)
            assert answer.startswith(b"HTTP/1.1 502 "), "nobody listens at what was checked"
        assert names == ["some.host"]
        assert heads == []

    asyncio.run(play())


def test_the_owners_proxy_is_chained_with_its_password(tmp_path: Path) -> None:
    async def play() -> None:
        heads: list[bytes] = []
        server, port = await serving(answering(heads))
        async with server:
            variables = {"HTTPS_PROXY": f"http://owner:s%40cret@127.0.0.1:{port}"}
            upstreams = upstreams_of({**variables, "http_proxy": variables["HTTPS_PROXY"]})
            head = "GET http://8.8.8.8/x HTTP/1.1\r\nProxy-Authorization: Basic stolen"
            answer, _, _ = await ask(tmp_path, head, upstreams=upstreams)
            assert answer.endswith(b"hello")
            await ask(tmp_path, "CONNECT unknown.invalid:443 HTTP/1.1", upstreams=upstreams)
            refused, _, _ = await ask(tmp_path, "CONNECT 10.0.0.1:443 X", upstreams=upstreams)
            assert refused.startswith(b"HTTP/1.1 403 ")
        secret = base64.b64encode(b"owner:s@cret")
        assert heads[0].startswith(b"GET http://8.8.8.8/x HTTP/1.1\r\n")
        assert heads[1].startswith(b"CONNECT unknown.invalid:443 HTTP/1.1\r\n")
        assert all(b"Proxy-Authorization: Basic " + secret in head for head in heads)
        assert not any(b"stolen" in head for head in heads)
        assert len(heads) == 2

    asyncio.run(play())


def test_hosts_that_need_no_proxy_and_proxies_that_cannot_be_chained() -> None:
    upstreams = upstreams_of({"ALL_PROXY": "proxy:3128", "NO_PROXY": ".internal, example.org"})
    assert upstreams.of("https", "packages.example.com") is not None
    assert upstreams.of("https", "a.internal") is None
    assert upstreams.of("http", "www.example.org") is None
    assert upstreams.of("http", "notexample.org") is not None
    with pytest.raises(ValueError, match="HTTPS_PROXY"):
        upstreams_of({"HTTPS_PROXY": "socks5://proxy:1080"})


def test_more_than_the_quota_is_cut_off(tmp_path: Path) -> None:
    async def play() -> None:
        server, port = await serving(answering([], bytes(4 << 20)))
        async with server:
            head = f"GET http://127.0.0.1:{port}/ HTTP/1.1"
            answer, _, told = await ask(tmp_path, head, allowed=HERE, bytes_max=1 << 20)
        assert len(answer) <= 1 << 20
        assert told == ["exceeded"]

    asyncio.run(play())


def test_on_loopback_nobody_gets_through_without_the_password(tmp_path: Path) -> None:
    async def play() -> None:
        proxy = ForwardProxy(HERE, Upstreams(), 1 << 30, lambda: None)
        url = await proxy.listen_here()
        pair, _, place = url.removeprefix("http://").partition("@")
        heads: list[bytes] = []
        server, port = await serving(answering(heads))
        try:
            async with server:
                secret = base64.b64encode(pair.encode()).decode()
                for said, expected in (("wrong", b"407"), (secret, b"200")):
                    reader, writer = await asyncio.open_connection(*place.split(":"))
                    head = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n"
                    writer.write(f"{head}Proxy-Authorization: Basic {said}\r\n\r\n".encode())
                    assert (await reader.read(-1)).split()[1] == expected
                    writer.close()
        finally:
            await proxy.close()
        assert len(heads) == 1

    asyncio.run(play())
