"""What tasks write: as far as it has come, and with `?follow` as it comes.

    GET /api/v1/tasks/{id}/logs                  {stdout, stderr}, and complete: false meanwhile
                              ?stream=stdout     that stream's bytes
                              ?follow            server-sent events: log …, end
                              ?follow&stream=…   that stream's bytes, as they come
    GET /api/v1/jobs/{id}/logs?follow            the same events for all tasks that take long

A task that runs for more than a moment tells what it writes at short intervals; what was left
out, because it was too much, comes when the task has ended. Each event says whose attempt's
text it is: what an attempt that was lost had written stays as it was.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from mycel.api.answers.answers import LogsAnswer
from mycel.api.backend import Backend, Stopping
from mycel.api.event_listeners import Crowded
from mycel.api.http.exchange import Connected, Request, Send, answer, hang_up
from mycel.api.http.problems import Problem, not_found, unprocessable
from mycel.api.output_followers import OutputListener
from mycel.core.events import ReadJob, ReadTask, WaitJob, WaitTask
from mycel.core.identifiers import JobId, task_id
from mycel.core.journal import TaskEnded
from mycel.core.views import JobView, TaskView
from mycel.store.live_logs import Stretch, joined

from . import job_routes, task_routes

KEEP_ALIVE_SECONDS: Final = 15.0
SLOW_SECONDS: Final = 30.0
STREAMS: Final = {1: "stdout", 2: "stderr"}
_EVENTS: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
_TEXT: Final = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
_LEFT_OUT: Final = re.compile(rb"\n\.\.\. (\d+) bytes left out \.\.\.\n")
_PARTIAL_BYTES_MAX: Final = 3
"""So many bytes of a character may be missing at the end of a stretch."""


async def task_logs(request: Request) -> None:
    with request.lasting():
        await _task_logs(request)


async def _task_logs(request: Request) -> None:
    query, backend, send = request.query(), request.backend, request.send
    stream = query.text("stream")
    if stream not in (None, "stdout", "stderr"):
        raise unprocessable("stream is stdout or stderr")
    job, index = task_routes.parse(request.name)
    if query.flag("follow"):
        await _follow(request, job, index, stream)
        return
    with Connected(request.receive):
        await task_routes.wait(backend, job, index, query.wait_seconds())
        ended = await _end(backend, job, index)
    kept = backend.output(job, index)
    written = {number: _written(ended, kept, number) for number in STREAMS}
    if stream is not None:
        body = written[1] if stream == "stdout" else written[2]
        await answer(send, 200, body, media_type=b"text/plain; charset=utf-8")
        return
    stdout, stderr = (one.decode(errors="replace") for one in written.values())
    await request.answer(LogsAnswer(stdout, stderr, ended is not None))


async def job_logs(request: Request) -> None:
    with request.lasting():
        if not request.query().flag("follow"):
            raise unprocessable("the logs of a whole job can be followed only: add ?follow")
        await _follow(request, job_routes.parse(request.name), None, None)


async def _end(backend: Backend, job: JobId, index: int) -> TaskEnded | None:
    found = await backend.ask(lambda request: ReadTask(request, job, index))
    if isinstance(found, TaskView):
        return None
    result = await backend.read(lambda reader: reader.result(job, index))
    if result is None:
        raise not_found(f"task {job}.{index}: it was pruned")
    return result.ended


def _written(ended: TaskEnded | None, kept: list[Stretch], stream: int) -> bytes:
    """What the end says, or, where that is nothing, what was heard before."""
    whole = b"" if ended is None else (ended.stdout if stream == 1 else ended.stderr)
    return whole or joined(kept, stream)


async def _follow(request: Request, job: JobId, index: int | None, stream: str | None) -> None:
    backend, send = request.backend, request.send
    try:
        with backend.listening_to_output(job, index) as listener:
            if index is None:  # a 404 has to come before the first byte
                await backend.ask(lambda number: ReadJob(number, job))
            else:
                await backend.ask(lambda number: ReadTask(number, job, index))
            headers = _EVENTS if stream is None else _TEXT
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            gone = asyncio.ensure_future(hang_up(request.receive))
            gone.add_done_callback(lambda _: listener.arrived.set())
            try:
                await _Following(backend, job, index, stream, listener, send).run(gone)
            except Stopping:
                return  # breaks off, instead of ending: the reader should come again
            finally:
                gone.cancel()
    except Crowded:
        detail = "too many follow the logs of this scheduler's tasks; try again later"
        raise Problem(429, detail, headers=[(b"retry-after", b"10")]) from None


class _Shown:
    """How far one stream of a task has been shown."""

    def __init__(self) -> None:
        self.number = 0
        self.end = 0
        self.partial = b""
        """The beginning of a character."""


class _Following:
    def __init__(
        self,
        backend: Backend,
        job: JobId,
        index: int | None,
        stream: str | None,
        listener: OutputListener,
        send: Send,
    ) -> None:
        self._backend = backend
        self._job = job
        self._index = index
        self._stream = stream
        self._listener = listener
        self._send = send
        self._shown: dict[tuple[int, int], _Shown] = {}
        self._is_slow = False

    async def run(self, gone: asyncio.Future[None]) -> None:
        listener, index = self._listener, self._index
        ended = asyncio.ensure_future(self._ended())
        ended.add_done_callback(lambda _: listener.arrived.set())
        try:
            await self._write(b"")  # the headers go out at once
            live = self._backend.tasks_with_output(self._job) if index is None else [index]
            for one in live:
                await self._show(one, self._backend.output(self._job, one))
            while not (gone.done() or listener.over or self._is_slow):
                is_over = ended.done()
                await self._tell(listener)
                if is_over:
                    await self._finish(ended.result())
                    return
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await listener.arrived.wait()
                except TimeoutError:
                    await self._write(b": still here\n\n" if self._stream is None else b"")
        finally:
            ended.cancel()

    async def _ended(self) -> object:
        job, index = self._job, self._index
        if index is None:
            return await self._backend.ask(lambda request: WaitJob(request, job))
        return await self._backend.ask(lambda request: WaitTask(request, job, index))

    async def _tell(self, listener: OutputListener) -> None:
        for index, stretch in listener.take():
            if stretch is not None:
                await self._show(index, [stretch])
            elif self._index is None:
                await self._show_end(index)

    async def _finish(self, view: object) -> None:
        about: dict[str, object] = {}
        if self._index is None:
            if isinstance(view, JobView):
                about = {"job_id": self._job, "state": view.state}
        else:
            ended = await self._show_end(self._index)
            if ended is not None:
                about = {
                    "task_id": task_id(self._job, self._index),
                    "state": ended.state,
                    "attempt": ended.number,
                    "exit_code": ended.exit_code,
                    "error": ended.error or None,
                }
        if self._stream is None:
            await self._write(_event("end", about))
        await self._send({"type": "http.response.body", "body": b""})

    async def _show_end(self, index: int) -> TaskEnded | None:
        """What the task's end brings beyond what was shown."""
        ended = await _end(self._backend, self._job, index)
        if ended is not None:
            rest = [
                Stretch(ended.number, stream, *_rest(whole, self._shown_end(index, ended, stream)))
                for stream, whole in ((1, ended.stdout), (2, ended.stderr))
            ]
            await self._show(index, [one for one in rest if one.data], last=True)
        return ended

    def _shown_end(self, index: int, ended: TaskEnded, stream: int) -> int:
        shown = self._shown.get((index, stream))
        return 0 if shown is None or shown.number != ended.number else shown.end

    async def _show(self, index: int, stretches: Iterable[Stretch], last: bool = False) -> None:
        parts: list[bytes] = []
        for one in stretches:
            if self._stream in (None, STREAMS[one.stream]):
                parts += self._parts(index, one, last)
        if parts:
            await self._write(b"".join(parts))

    def _parts(self, index: int, one: Stretch, last: bool) -> Iterable[bytes]:
        shown = self._shown.setdefault((index, one.stream), _Shown())
        if one.number > shown.number:
            shown.number, shown.end, shown.partial = one.number, 0, b""
        end = one.offset + len(one.data)
        if one.number < shown.number or end <= shown.end:
            return
        data = one.data[max(0, shown.end - one.offset) :]
        left_out = max(0, one.offset - shown.end)
        shown.end = end
        if self._stream is not None:
            note = b"\n... %d bytes left out ...\n" % left_out if left_out else b""
            yield note + data
            return
        about: dict[str, object] = {
            "task_id": task_id(self._job, index),
            "attempt": one.number,
            "stream": STREAMS[one.stream],
        }
        if left_out:
            yield _event("log", {**about, "left_out_bytes": left_out})
        data = shown.partial + data
        text, shown.partial = _decoded(data, last)
        if text is None:
            yield _event("log", {**about, "base64": base64.b64encode(data).decode()})
        elif text:
            yield _event("log", {**about, "text": text})

    async def _write(self, body: bytes) -> None:
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            self._is_slow = True


def _rest(whole: bytes, shown: int) -> tuple[int, bytes]:
    """What of an ended stream lies behind `shown`, and where it begins. A long one lacks its
    middle, and says how much that is."""
    found = _LEFT_OUT.search(whole) if len(whole) >= 1 << 10 else None
    if found is None or shown <= found.start():
        return shown, whole[shown:]
    tail_at = found.start() + int(found[1])
    tail = whole[found.end() :]
    behind = max(shown, tail_at)
    return behind, tail[behind - tail_at :]


def _decoded(data: bytes, last: bool) -> tuple[str | None, bytes]:
    """As text, and the bytes of a character that is not whole yet; None if it is no text."""
    try:
        return data.decode(), b""
    except UnicodeDecodeError as error:
        is_cut = error.reason == "unexpected end of data"
        if last or not is_cut or len(data) - error.start > _PARTIAL_BYTES_MAX:
            return None, b""
        return data[: error.start].decode(), data[error.start :]


def _event(kind: str, fields: dict[str, object]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(fields))
