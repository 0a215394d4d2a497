"""Where tasks report: what they can send that is no report, and how much of the worker they get."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mycel.core.identifiers import AttemptId
from mycel.drivers.report_server import CONNECTIONS_MAX, ReportServer

ATTEMPT = AttemptId(7)


class Heard:
    """Who takes what tasks say; it never has a checkpoint unless it is told one."""

    def __init__(self) -> None:
        self.reports: list[bytes] = []
        self.checkpoints: list[bytes] = []
        self.restoring: asyncio.Queue[Callable[[bytes | None], None]] = asyncio.Queue()

    def progressed(self, run: AttemptId, report: bytes) -> None:
        self.reports.append(report)

    def checkpoint(
        self, run: AttemptId, data: bytes, kept: Callable[[bool], None] | None = None
    ) -> None:
        self.checkpoints.append(data)

    def restore(self, run: AttemptId, restored: Callable[[bytes | None], None]) -> None:
        self.restoring.put_nowait(restored)


def at_a_desk(scenario: Callable[[ReportServer, str, Heard], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: faults.append(told))
        heard = Heard()
        report_server = ReportServer(heard)
        try:
            async with asyncio.timeout(30):
                await scenario(
                    report_server, report_server.open("lane-1", lambda: [ATTEMPT]), heard
                )
        finally:
            await report_server.close()
        assert faults == []

    asyncio.run(all_of_it())


async def ask(path: str, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def request(first: str, body: bytes, length: int | str | None = None) -> bytes:
    told = len(body) if length is None else length
    return f"{first} HTTP/1.1\r\nContent-Length: {told}\r\n\r\n".encode("latin-1") + body


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request("POST /progress", b'{"message": "\xff"}'), b"400"),
        (request("POST /progress", b"[" * 16_000), b"422"),
        (request("POST /progress", b"{" * 10), b"400"),
        (request("POST /progress", b"", "\xb2"), b"400"),
        (request("POST /progress", b"", "9" * 5000), b"413"),
        (request("POST /progress", b"", -1), b"400"),
        (request("PUT /checkpoint", b"", (64 << 20) + 1), b"413"),
        (request("DELETE /checkpoint", b""), b"405"),
        (request("GET /else", b""), b"404"),
        (request("GET /" + "a" * 20_000, b""), b"400"),
        (request("GET /" + "a" * 100_000, b""), b"400"),
        (b"\r\n\r\n", b"400"),
    ],
)
def test_what_is_no_report_is_answered_and_no_fault_of_the_worker(
    sent: bytes, status: bytes
) -> None:
    async def scenario(report_server: ReportServer, path: str, heard: Heard) -> None:
        answer = await ask(path, sent)
        assert answer.split(b" ")[1] == status, answer
        assert (await ask(path, request("POST /progress", b'{"progress": 1}')))[9:12] == b"204"
        assert heard.reports == [b'{"progress":1.0}']

    at_a_desk(scenario)


def test_a_task_that_fills_its_own_lane_keeps_nobody_else_from_reporting() -> None:
    async def scenario(report_server: ReportServer, path: str, heard: Heard) -> None:
        silent = [await asyncio.open_unix_connection(path) for _ in range(CONNECTIONS_MAX)]
        assert b" 429 " in await ask(path, b"")
        other = report_server.open("lane-2", lambda: [AttemptId(8)])
        assert b" 204 " in await ask(other, request("POST /progress", b"{}"))
        for _, writer in silent:
            writer.close()

    at_a_desk(scenario)


def test_of_many_checkpoints_at_once_the_worker_holds_one_each_way() -> None:
    async def scenario(report_server: ReportServer, path: str, heard: Heard) -> None:
        size = 1 << 20
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(request("PUT /checkpoint", b"a", size))
        await writer.drain()
        second = asyncio.create_task(ask(path, request("PUT /checkpoint", b"b" * size)))
        getting = [asyncio.create_task(ask(path, request("GET /checkpoint", b""))) for _ in "12"]
        restored = await heard.restoring.get()
        assert b" 204 " in await ask(path, request("POST /progress", b"{}"))
        assert heard.checkpoints == []
        assert heard.restoring.empty()
        writer.write(b"a" * (size - 1))
        assert b" 204 " in await reader.read()
        assert b" 204 " in await second
        assert [data[:1] for data in heard.checkpoints] == [b"a", b"b"]
        restored(b"c" * size)
        (await heard.restoring.get())(b"c" * size)
        for answer in await asyncio.gather(*getting):
            assert answer.endswith(b"\r\n\r\n" + b"c" * size)
        writer.close()

    at_a_desk(scenario)
