"""`GET /api/v1/events`: what happens, as server-sent events.

Ends of tasks are read from the store, in the order of commits, and carry the commit's sequence
as their id: `Last-Event-ID` goes on behind it, and nothing is missed. The others have no id and
are told only to those who listen at that moment.

What has happened is sent before the ends that were read after it: a task's start is told before
its end. A job's end carries the id of its last task, whose own event goes without: a reader that
is cut off in between gets both again.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from mycel.api.answers.answers import iso
from mycel.api.authentication import Caller
from mycel.api.backend import Backend
from mycel.api.event_listeners import Crowded, Listener
from mycel.api.http.exchange import Query, Request, Send, hang_up
from mycel.api.http.problems import Problem, not_found, unprocessable
from mycel.core.effects import Happening
from mycel.core.identifiers import JobId, parse_task_id, task_id
from mycel.store.interface import End, Reader

from . import job_routes
from .task_routes import job_view

ENDS_MAX: Final = 1000
KEEP_ALIVE_SECONDS: Final = 15.0
SLOW_SECONDS: Final = 30.0
"""A reader that takes nothing for so long is cut off."""
KINDS: Final = (
    "job.submitted",
    "job.succeeded",
    "job.failed",
    "job.cancelled",
    "task.queued",
    "task.started",
    "task.progress",
    "task.delayed",
    "task.succeeded",
    "task.failed",
    "task.cancelled",
    "worker.joined",
    "worker.described",
    "worker.silent",
    "worker.heard",
    "worker.away",
    "worker.dead",
    "worker.forged",
)
_HEADERS: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
_encode: Final = msgspec.json.Encoder().encode


class Wanted(msgspec.Struct, frozen=True):
    """What a reader asked for."""

    job: JobId | None = None
    index: int | None = None
    kinds: frozenset[str] = frozenset(KINDS)
    follow: bool = True
    after: int | None = None
    """None: from now on."""

    def wants(self, kind: str, job: str | None, index: int | None, details: object = None) -> bool:
        if kind not in self.kinds or (self.job is not None and job != self.job):
            return False
        if self.index is None or index is not None:
            return self.index is None or index == self.index
        # Tasks are queued in batches, which say where they begin and how many they are.
        if isinstance(details, dict) and "first" in details:
            first: int = details["first"]
            return first <= self.index < first + int(details["count"])
        return False


def _wanted(request: Request) -> Wanted:
    query = request.query()
    job: JobId | None = None
    index: int | None = None
    if (text := query.text("task")) is not None:
        parsed = parse_task_id(text)
        if parsed is None:
            raise not_found(f"task {text!r}")
        job, index = parsed
    if (text := query.text("job")) is not None:
        if job not in (None, text):
            raise unprocessable("the task is not one of the job")
        job = job_routes.parse(text)
    return Wanted(
        job,
        index,
        _kinds(query.text("kinds")),
        query.flag("follow") or query.text("follow") is None,
        _after(query, request.header(b"last-event-id")),
    )


def _after(query: Query, last: bytes | None) -> int | None:
    if last is not None and last.strip():
        if not last.strip().isdigit() or len(last) > 18:
            raise unprocessable("Last-Event-ID is the id of an event of this stream")
        return int(last)
    return query.integer("after", 0, 0, 1 << 60) if query.text("after") is not None else None


def _kinds(text: str | None) -> frozenset[str]:
    """`task.failed,worker.*`: kinds by name, or all of a sort."""
    if text is None:
        return frozenset(KINDS)
    chosen: set[str] = set()
    for name in text.split(","):
        found = {kind for kind in KINDS if kind == name or f"{kind.partition('.')[0]}.*" == name}
        if not found:
            raise unprocessable(f"there are no events {name!r}; known: {', '.join(KINDS)}")
        chosen |= found
    return frozenset(chosen)


async def stream_events(request: Request) -> None:
    with request.lasting():
        await _stream(request)


async def _stream(request: Request) -> None:
    wanted = _wanted(request)
    backend, send = request.backend, request.send
    _check(backend, request.caller, wanted.job)
    if wanted.job is not None:
        await job_view(backend, wanted.job)  # a 404 has to come before the first byte
    try:
        with backend.listening() as listener:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            gone = asyncio.ensure_future(hang_up(request.receive))
            gone.add_done_callback(lambda _: listener.news.set())
            try:
                await _Stream(backend, wanted, listener, gone, send).run()
            finally:
                gone.cancel()
    except Crowded:
        detail = "too many listen to this scheduler's events; try again later"
        raise Problem(429, detail, headers=[(b"retry-after", b"10")]) from None


def _check(backend: Backend, caller: Caller, job: str | None) -> None:
    """Who may not see everything follows jobs of its own."""
    if caller.sees_all:
        return
    if job is None:
        raise Problem(403, "this token allows the events of its user's own jobs: add ?job=ID")
    if not caller.sees(backend.user_of(job) or ""):
        raise not_found(f"job {job!r}")


class _Stream:
    def __init__(
        self,
        backend: Backend,
        wanted: Wanted,
        listener: Listener,
        gone: asyncio.Future[None],
        send: Send,
    ) -> None:
        self._backend = backend
        self._wanted = wanted
        self._listener = listener
        self._gone = gone
        self._send = send
        self._after = 0

    async def run(self) -> None:
        """Breaks off, instead of ending, where a reader should come again."""
        listener = self._listener
        if not await self._write(await self._begin()):
            return
        while not (self._gone.done() or listener.over or listener.fell_behind):
            listener.news.clear()
            ends = await self._read()
            news = [*self._happened(listener.take()), *self._ended(ends)]
            if news and not await self._write(b"".join(news)):
                return
            if len(ends) == ENDS_MAX:
                continue
            if not self._wanted.follow:
                await self._send({"type": "http.response.body", "body": b""})
                return
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    await listener.news.wait()
            except TimeoutError:
                if not await self._write(b": still here\n\n"):
                    return

    async def _begin(self) -> bytes:
        """Where to go on; and whether what the reader asks for is still there."""
        pruned, last = await self._backend.read(lambda reader: reader.sequences())
        after = self._wanted.after
        if after is None:
            self._after = last if self._wanted.follow else 0
        elif after == 0 or pruned <= after <= last:
            self._after = after
        else:
            self._after = max(pruned, min(after, last))
            going_on = {"after": after, "going_on_after": self._after}
            return _event("reset", going_on, self._after)
        # An id alone is no event: it tells a reader where to go on before there is one.
        return b"id: %d\n\n" % self._after

    async def _read(self) -> list[End]:
        look = functools.partial(_ends, after=self._after, job=self._wanted.job)
        ends = await self._backend.read(look)
        if ends:
            self._after = ends[-1].sequence
        return ends

    def _happened(self, happenings: Iterable[Happening]) -> Iterable[bytes]:
        for one in happenings:
            if self._wanted.wants(one.kind, one.job_id, one.index, one.details):
                fields: dict[str, object] = {"at": iso(one.at)}
                if one.job_id is not None:
                    fields["job_id"] = one.job_id
                    if one.index is not None:
                        fields["task_id"] = task_id(one.job_id, one.index)
                if one.worker is not None:
                    fields["worker"] = one.worker
                yield _event(one.kind, fields | one.details)

    def _ended(self, ends: Iterable[End]) -> Iterable[bytes]:
        for end in ends:
            kind, job_kind = f"task.{end.state}", f"job.{end.job_state}"
            tells_job = bool(end.job_state) and self._wanted.wants(job_kind, end.job_id, None)
            if self._wanted.wants(kind, end.job_id, end.index):
                fields = {
                    "at": iso(end.ended_at),
                    "job_id": end.job_id,
                    "task_id": task_id(end.job_id, end.index),
                    "attempt": end.number,
                    "worker": end.worker,
                    "exit_code": end.exit_code,
                    "error": end.error or None,
                    "reason": end.reason or None,
                }
                yield _event(kind, fields, None if tells_job else end.sequence)
            if tells_job:
                about = {"at": iso(end.ended_at), "job_id": end.job_id, "name": end.job_name}
                yield _event(job_kind, about, end.sequence)

    async def _write(self, body: bytes) -> bool:
        """False if the reader is too slow."""
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            return False
        return True


def _ends(reader: Reader, after: int, job: JobId | None) -> list[End]:
    return reader.ends(after=after, limit=ENDS_MAX, job=job)


def _event(kind: str, fields: Mapping[str, object], identifier: int | None = None) -> bytes:
    first = b"" if identifier is None else b"id: %d\n" % identifier
    return b"%sevent: %s\ndata: %s\n\n" % (first, kind.encode(), _encode({"kind": kind, **fields}))
