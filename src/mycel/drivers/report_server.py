"""Where tasks report: a Unix socket for each lane, with a small HTTP interface.

    POST /progress     {"progress": 0.4, "message": "…", "metrics": {"loss": 0.2}}
    PUT  /checkpoint   bytes; with ?wait, answered when the scheduler has them
    GET  /checkpoint   the last one of this task; 404 if there is none

A lane runs one task at a time, so that its socket says who speaks: no token, and nothing per
task. Only processes of the worker's user, and of the user that its tasks run as, are heard, save
for containers, which have users of their own.

A task that may connect to nothing has a channel instead: a connection that its launcher has made,
and opened with a zero byte. Each message on it brings a socket, which is served like a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import msgspec

from mycel.core.identifiers import AttemptId
from mycel.core.model.reports import Report, encode
from mycel.drivers.sandbox.launch import SOCKET_VARIABLE as SOCKET_VARIABLE
from mycel.store.checkpoints import CHECKPOINT_BYTES_MAX

from .socket_folder import SocketFolder

HEAD_BYTES_MAX: Final = 16 << 10
REPORT_BYTES_MAX: Final = 16 << 10
LENGTH_DIGITS_MAX: Final = 20
REQUEST_SECONDS: Final = 60.0
"""A request must be there after so long."""
CHANNEL_MARK: Final = b"\0"
_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group of a peer."""
CONNECTIONS_MAX: Final = 16
"""At once, of one lane: no task keeps others from reporting."""
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
    """Who takes what tasks say: `roles.worker.report_relay.ReportRelay`."""

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


class _Lane:
    """Of long bodies it sends one at a time and gets one at a time: we hold them in memory."""

    def __init__(self, listening: socket.socket, whose: Whose, anybody: bool) -> None:
        self.listening = listening
        self.anybody = anybody
        self.whose = whose
        self.connections_count = 0
        self.sending = asyncio.Lock()
        self.getting = asyncio.Lock()


class ReportServer:
    def __init__(self, reports: Reports, tasks_user: int = -1) -> None:
        """`tasks_user`: whom tasks run as, if that is not the worker's user."""
        self._reports = reports
        self._users = {os.geteuid(), tasks_user}
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[str, _Lane] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._folder = SocketFolder()

    def open(self, name: str, whose: Whose, *, anybody: bool = False) -> str:
        """Listens for a lane; the path that its tasks get as `MYCEL_SOCKET`. `anybody`: they may
        be any user's, as in containers."""
        path = str(self._folder.path / name)
        if name not in self._lanes:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            listening.bind(path)
            os.chmod(path, 0o666)  # noqa: PTH101, S103 - who gets to see it is the sandbox's matter
            listening.listen(8)
            lane = self._lanes[name] = _Lane(listening, whose, anybody)
            self._loop.add_reader(listening, self._accept, lane)
        return path

    def close_one(self, name: str) -> None:
        lane = self._lanes.pop(name, None)
        if lane is not None:
            self._loop.remove_reader(lane.listening)
            lane.listening.close()
            (self._folder.path / name).unlink(missing_ok=True)

    async def close(self) -> None:
        for name in list(self._lanes):
            self.close_one(name)
        for serving in list(self._serving):
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        self._folder.remove()

    def _accept(self, lane: _Lane) -> None:
        try:
            connection, _ = lane.listening.accept()
        except OSError:
            return
        if not lane.anybody and _user_of(connection) not in self._users:
            connection.close()
            return
        connection.setblocking(False)
        self._own(self._meet(connection, lane))

    def _own(self, serving: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(serving)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _meet(self, connection: socket.socket, lane: _Lane) -> None:
        """A request, or the channel of a task."""
        is_channel = False
        lane.connections_count += 1
        try:
            if lane.connections_count <= CONNECTIONS_MAX:  # or it is refused, unheard
                async with asyncio.timeout(REQUEST_SECONDS):
                    await self._readable(connection)
                is_channel = connection.recv(1, socket.MSG_PEEK) == CHANNEL_MARK
        except (OSError, TimeoutError):
            connection.close()
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            lane.connections_count -= 1
        if is_channel:
            await self._channel(connection, lane)
        else:
            await self._serve(connection, lane)

    async def _channel(self, connection: socket.socket, lane: _Lane) -> None:
        """Until the last process that has it ends."""
        with connection:
            while True:
                await self._readable(connection)
                try:
                    data, given, _, _ = socket.recv_fds(connection, 1, 1)
                except OSError:
                    return
                for descriptor in given:
                    self._own(self._serve_given(descriptor, lane))
                if not data:
                    return

    async def _serve_given(self, descriptor: int, lane: _Lane) -> None:
        """A descriptor from a task may be anything: what is not a Unix stream is closed."""
        with contextlib.suppress(OSError):
            given = socket.socket(fileno=descriptor)
            is_fit = given.family == socket.AF_UNIX and given.type == socket.SOCK_STREAM
            if not is_fit:
                given.close()
                return
            given.setblocking(False)
            await self._serve(given, lane)
            return
        with contextlib.suppress(OSError):
            os.close(descriptor)

    async def _readable(self, connection: socket.socket) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(connection, _settling(ready), None)
        try:
            await ready
        finally:
            self._loop.remove_reader(connection)

    async def _serve(self, connection: socket.socket, lane: _Lane) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        lane.connections_count += 1
        try:
            await self._answer(reader, writer, lane)
        except TimeoutError:
            writer.transport.abort()  # it has not read its answer: nor will it
        except (OSError, EOFError):
            pass  # the task has hung up, which is its right
        finally:
            lane.connections_count -= 1
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lane: _Lane
    ) -> None:
        try:
            if lane.connections_count > CONNECTIONS_MAX:
                raise _Refused(429, "too many reports at once; try again in a moment")
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    request = await _read(reader, writer, lane.sending)
            except TimeoutError:
                raise _Refused(408, "the request did not arrive in time") from None
            if (request.method, request.path) == ("GET", "/checkpoint"):
                async with lane.getting:
                    await _write(writer, 200, await self._restored(await _speaker(lane)))
            else:
                await self._act(await _speaker(lane), request)
                await _write(writer, 204, b"")
        except _Refused as refused:
            problem = {"status": refused.status, "detail": str(refused)}
            await _write(writer, refused.status, msgspec.json.encode(problem))

    async def _act(self, attempt: AttemptId, request: _Request) -> None:
        match request.method, request.path:
            case "POST", "/progress":
                self._reports.progressed(attempt, _report(request.body))
            case "PUT", "/checkpoint":
                await self._checkpoint(attempt, request)
            case _, "/progress" | "/checkpoint":
                raise _Refused(405, f"{request.method} is not for {request.path}")
            case _:
                raise _Refused(404, "there are POST /progress, and PUT and GET /checkpoint")

    async def _restored(self, attempt: AttemptId) -> bytes:
        found: asyncio.Future[bytes | None] = self._loop.create_future()
        self._reports.restore(attempt, _settling(found))
        data = await found
        if data is None:
            raise _Refused(404, "this task has left no checkpoint")
        return data

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


def _user_of(connection: socket.socket) -> int:
    try:
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (AttributeError, OSError):  # not on this system: the folder's name is the secret
        return os.geteuid()
    return int(_CREDENTIALS.unpack(told)[1])


async def _speaker(lane: _Lane) -> AttemptId:
    if len(lane.whose()) > 1:
        await asyncio.sleep(SETTLE_SECONDS)
    attempts = lane.whose()
    if not attempts:
        raise _Refused(409, "no task runs here")
    return attempts[0]


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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Refused(400, f"not JSON: {error}") from error


async def _write(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Length: {len(body)}\r\n"
    head += "Connection: close\r\n"
    if body:
        kind = "octet-stream" if status == 200 else "problem+json"
        head += f"Content-Type: application/{kind}\r\n"
    writer.write(f"{head}\r\n".encode() + body)
    async with asyncio.timeout(REQUEST_SECONDS):
        await writer.drain()


async def _read(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sending: asyncio.Lock
) -> _Request:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _Refused(400, f"the head of a request has at most {HEAD_BYTES_MAX} bytes") from None
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or len(head) > HEAD_BYTES_MAX:
        raise _Refused(400, "not a request in HTTP/1.1")
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    length = fields.get("content-length", "0")
    if "transfer-encoding" in fields or not (length.isascii() and length.isdigit()):
        raise _Refused(400, "send a Content-Length")
    if len(length) > LENGTH_DIGITS_MAX or int(length) > CHECKPOINT_BYTES_MAX:
        raise _Refused(413, f"a checkpoint has at most {CHECKPOINT_BYTES_MAX} bytes")
    if "expect" in fields:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    path, _, query = words[1].partition("?")
    async with sending if int(length) > REPORT_BYTES_MAX else contextlib.nullcontext():
        return _Request(words[0], path, query, await reader.readexactly(int(length)))
