"""Where tasks report: a Unix socket for each lane, with a small HTTP interface.

    POST /progress     {"progress": 0.4, "message": "…", "metrics": {"loss": 0.2}}
    PUT  /checkpoint   bytes; with ?wait, answered when the scheduler has them
    GET  /checkpoint   the last one of this task; 404 if there is none

A lane runs one task at a time, so that its socket says who speaks: no token, and nothing per
task. Sockets lie in a short folder of their own, because a path to one may have 107 bytes at the
most and a home may be deep.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from mycel.core.identifiers import AttemptId
from mycel.core.reports import Report, encode
from mycel.store.checkpoints import CHECKPOINT_BYTES_MAX

HEAD_BYTES_MAX: Final = 16 << 10
REPORT_BYTES_MAX: Final = 16 << 10
REQUEST_SECONDS: Final = 60.0
"""A request must be there after so long."""
CONNECTIONS_MAX: Final = 64
"""At once, of all tasks: each may bring a checkpoint."""
SOCKET_VARIABLE: Final = "MYCEL_SOCKET"
_NOTE: Final = "sockets"
_PHRASES: Final = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
}

SETTLE_SECONDS: Final = 0.02
"""The end of the task before may not have been told yet, which takes the helper 10 ms."""

Whose = Callable[[], list[AttemptId]]
"""Attempts that a lane has, the one that runs first, as far as is known."""


class Reports(Protocol):
    """Who takes what tasks say: `roles.reporting.Reporting`."""

    def progressed(self, run: AttemptId, report: bytes) -> None: ...
    def checkpoint(
        self, run: AttemptId, data: bytes, kept: Callable[[bool], None] | None = None
    ) -> None: ...
    def restore(self, run: AttemptId, restored: Callable[[bytes | None], None]) -> None: ...


class _Refused(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: str
    body: bytes


class Desk:
    def __init__(self, reports: Reports, root: Path) -> None:
        """`root` remembers where the sockets are, so that the next worker can tidy up."""
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        self._note = root / _NOTE
        self._listening: dict[str, socket.socket] = {}
        self._serving: set[asyncio.Task[None]] = set()
        root.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        self._folder = Path(tempfile.mkdtemp(prefix="mycel-"))
        self._folder.chmod(0o711)
        self._note.write_text(str(self._folder))

    def open(self, name: str, whose: Whose) -> str:
        """Listens for a lane; the path that its tasks get as `MYCEL_SOCKET`."""
        path = str(self._folder / name)
        if name not in self._listening:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            listening.bind(path)
            os.chmod(path, 0o666)  # noqa: PTH101, S103 - who gets to see it is the sandbox's matter
            listening.listen(8)
            self._listening[name] = listening
            self._loop.add_reader(listening, self._accept, listening, whose)
        return path

    def close_one(self, name: str) -> None:
        listening = self._listening.pop(name, None)
        if listening is not None:
            self._loop.remove_reader(listening)
            listening.close()
            (self._folder / name).unlink(missing_ok=True)

    async def close(self) -> None:
        for name in list(self._listening):
            self.close_one(name)
        for serving in list(self._serving):
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._note.unlink(missing_ok=True)

    def _remove_leftovers(self) -> None:
        """Of a worker that was killed."""
        with contextlib.suppress(OSError):
            left = Path(self._note.read_text())
            if left.name.startswith("mycel-") and left.parent == Path(tempfile.gettempdir()):
                shutil.rmtree(left, ignore_errors=True)

    def _accept(self, listening: socket.socket, whose: Whose) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        serving = self._loop.create_task(self._serve(connection, whose))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, connection: socket.socket, whose: Whose) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        try:
            status, body = await self._answer(reader, writer, whose)
            kind = b"application/octet-stream" if status == 200 else b"application/problem+json"
            head = b"HTTP/1.1 %d %s\r\nContent-Length: %d\r\nConnection: close\r\n" % (
                status,
                _PHRASES[status].encode(),
                len(body),
            )
            if body:
                head += b"Content-Type: %s\r\n" % kind
            writer.write(head + b"\r\n" + body)
            await writer.drain()
        except (OSError, EOFError):
            pass  # the task has hung up, which is its right
        finally:
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, whose: Whose
    ) -> tuple[int, bytes]:
        try:
            if len(self._serving) > CONNECTIONS_MAX:
                raise _Refused(429, "too many reports at once; try again in a moment")
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    request = await _read(reader, writer)
            except TimeoutError:
                raise _Refused(408, "the request did not arrive in time") from None
            if len(whose()) > 1:
                await asyncio.sleep(SETTLE_SECONDS)
            attempts = whose()
            if not attempts:
                raise _Refused(409, "no task runs here")
            return await self._act(attempts[0], request)
        except _Refused as refused:
            problem = {"status": refused.status, "detail": str(refused)}
            return refused.status, msgspec.json.encode(problem)

    async def _act(self, attempt: AttemptId, request: _Request) -> tuple[int, bytes]:
        match request.method, request.path:
            case "POST", "/progress":
                self._reports.progressed(attempt, _report(request.body))
                return 204, b""
            case "PUT", "/checkpoint":
                await self._checkpoint(attempt, request)
                return 204, b""
            case "GET", "/checkpoint":
                found: asyncio.Future[bytes | None] = self._loop.create_future()
                self._reports.restore(attempt, _settling(found))
                data = await found
                if data is None:
                    raise _Refused(404, "this task has left no checkpoint")
                return 200, data
            case _, "/progress" | "/checkpoint":
                raise _Refused(405, f"{request.method} is not for {request.path}")
        raise _Refused(404, "there are POST /progress, and PUT and GET /checkpoint")

    async def _checkpoint(self, attempt: AttemptId, request: _Request) -> None:
        if not request.body:
            raise _Refused(422, "a checkpoint has at least one byte")
        if not request.query:
            self._reports.checkpoint(attempt, request.body)
            return
        if request.query.partition("=")[0] != "wait":
            raise _Refused(422, f"unknown query parameter {request.query!r}; known: wait")
        kept: asyncio.Future[bool] = self._loop.create_future()
        self._reports.checkpoint(attempt, request.body, _settling(kept))
        if not await kept:
            raise _Refused(409, "a later checkpoint has taken its place, or the task has ended")


def _settling(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    def settle(value: Any) -> None:
        if not future.done():
            future.set_result(value)

    return settle


def _report(body: bytes) -> bytes:
    if len(body) > REPORT_BYTES_MAX:
        raise _Refused(413, f"a report has at most {REPORT_BYTES_MAX} bytes")
    try:
        return encode(msgspec.json.decode(body, type=Report))
    except msgspec.ValidationError as error:
        raise _Refused(422, str(error)) from error
    except msgspec.DecodeError as error:
        raise _Refused(400, f"not JSON: {error}") from error


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Request:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or len(head) > HEAD_BYTES_MAX:
        raise _Refused(400, "not a request in HTTP/1.1")
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    length = fields.get("content-length", "0")
    if "transfer-encoding" in fields or not length.isdigit():
        raise _Refused(400, "send a Content-Length")
    if int(length) > CHECKPOINT_BYTES_MAX:
        raise _Refused(413, f"a checkpoint has at most {CHECKPOINT_BYTES_MAX} bytes")
    if "expect" in fields:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    path, _, query = words[1].partition("?")
    return _Request(words[0], path, query, await reader.readexactly(int(length)))
