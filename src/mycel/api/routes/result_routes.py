"""A job's results as a stream of JSON lines, in the order of commits."""

from __future__ import annotations

import asyncio
import functools
from typing import Final

from mycel.api.backend import Backend, Stopping
from mycel.api.http.exchange import Request, Send, hang_up
from mycel.core.identifiers import JobId
from mycel.store.interface import Lines, Reader

from .job_routes import TERMINAL, parse
from .task_routes import job_view

LINES_MAX: Final = 2000
"""Read, encoded and sent at a time: what one reader holds in memory."""
PAUSE_SECONDS: Final = 0.005
"""A follower that got only a few lines waits so long for more of them: a read per commit
would cost more than the lines."""
FEW_LINES: Final = 500


async def stream_results(request: Request) -> None:
    """With `follow` it ends with the job, behind the last line.

    When the scheduler stops in the middle, the response breaks off instead of ending, so
    that nobody takes it for complete.
    """
    query = request.query()
    after, follow = query.integer("after", 0, 0, 1 << 60), query.flag("follow")
    job = parse(request.name)
    with request.lasting():
        await _stream(request, job, after, follow)


async def _stream(request: Request, job: JobId, after: int, follow: bool) -> None:
    backend, send = request.backend, request.send
    await job_view(backend, job)  # a 404 has to come before the first byte
    headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    hung_up = asyncio.ensure_future(hang_up(request.receive))
    try:
        await _send_lines(backend, job, after, follow, send, hung_up)
    except Stopping:
        return
    finally:
        hung_up.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _send_lines(
    backend: Backend,
    job: JobId,
    after: int,
    follow: bool,
    send: Send,
    hung_up: asyncio.Future[None],
) -> None:
    if follow:
        # Headers go out at once, so that the client knows that the job is there.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
    with backend.following(job) as advanced:
        over = not follow
        while not hung_up.done():
            advanced.clear()
            lines = await backend.read(functools.partial(_read, job=job, after=after))
            after = lines.last
            if lines.count:
                # Waits while the client's side is full: a slow reader costs one batch.
                body = {"type": "http.response.body", "body": lines.encoded, "more_body": True}
                await send(body)
                if lines.count < FEW_LINES and not over:
                    await asyncio.sleep(PAUSE_SECONDS)
                continue
            if over:
                return
            # Only a job that was over before an empty read has no further line.
            over = (await job_view(backend, job)).state in TERMINAL
            if not over:
                await _either(advanced, hung_up)


def _read(reader: Reader, job: JobId, after: int) -> Lines:
    return reader.lines(job, after=after, limit=LINES_MAX)


async def _either(advanced: asyncio.Event, hung_up: asyncio.Future[None]) -> None:
    waiting = asyncio.ensure_future(advanced.wait())
    try:
        await asyncio.wait((waiting, hung_up), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
