"""Requests to servers that may be a task's: where they go, and what nonsense comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mycel.drivers.model.http_stream import Endpoint, EndpointFault, request


def with_server(
    path: Path, answer: bytes, scenario: Callable[[list[bytes]], Awaitable[None]]
) -> None:
    """A server on a socket in this folder, which says one thing."""

    async def all_of_it() -> None:
        heads: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            writer.close()

        async with (
            asyncio.timeout(30),
            await asyncio.start_unix_server(serve, path / "model.sock"),
        ):
            await scenario(heads)

    asyncio.run(all_of_it())


async def body_at(path: Path) -> bytes:
    async with request(Endpoint(f"unix:{path}"), "GET", "/v1/models") as response:
        return await response.body(1 << 20)


def test_a_socket_is_asked_but_not_what_a_link_in_its_place_leads_to(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

    async def scenario(heads: list[bytes]) -> None:
        assert await body_at(tmp_path / "model.sock") == b"hi"
        link = tmp_path / "link.sock"
        link.symlink_to(tmp_path / "model.sock")
        for other in (link, tmp_path / "none.sock", tmp_path):
            with pytest.raises(EndpointFault, match="does not answer"):
                await body_at(other)
        assert len(heads) == 1

    with_server(tmp_path, answer, scenario)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"hm\r\n\r\n",
        b"HTTP/1.1 \xb2 OK\r\n\r\n",
        b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 9000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhm\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nh",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * ((1 << 20) + 1),
    ],
)
def test_what_is_no_answer_is_the_servers_fault(answer: bytes, tmp_path: Path) -> None:
    async def scenario(heads: list[bytes]) -> None:
        with pytest.raises(EndpointFault):
            await body_at(tmp_path / "model.sock")

    with_server(tmp_path, answer, scenario)
