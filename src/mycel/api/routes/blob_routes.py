"""PUT, GET and HEAD of one blob, and the question which ones are missing.

A blob is its user's: who knows a digest and has never had the content gets 404. An upload that
broke off goes on where HEAD says (`Upload-Offset`), with `Content-Range`.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Final

import msgspec

from mycel.api.authentication import Caller
from mycel.api.http.exchange import Gone, Receive, Request, Send
from mycel.api.http.problems import Headers, Problem, not_found, unprocessable
from mycel.api.submission.bodies import MissingBody, decode_missing
from mycel.api.submission.named_files import keeping
from mycel.blobs import digests
from mycel.blobs.blob_store import CHUNK_BYTES
from mycel.blobs.digests import Digest
from mycel.blobs.errors import (
    BadDigest,
    BlobError,
    BlobGone,
    BlobTooLarge,
    NoRoom,
    NoSuchBlob,
    WrongContent,
)
from mycel.blobs.scheduler_blobs import SchedulerBlobs
from mycel.blobs.transfer import BlobSink, in_thread

SILENCE_SECONDS: Final = 60.0
"""An upload without a byte for so long is broken off."""
_RANGE: Final = re.compile(rb"bytes=(\d{1,18})-(\d{1,18})?")
_CONTENT_RANGE: Final = re.compile(rb"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
_BYTES: Final = b"application/octet-stream"


class MissingAnswer(msgspec.Struct, frozen=True):
    missing: list[str]


class BlobAnswer(msgspec.Struct, frozen=True):
    digest: str
    size: int


async def list_missing(request: Request) -> None:
    request.query()
    body: MissingBody = decode_missing(await request.body())
    for name in body.digests:
        _parsed(name)
    caller = request.caller
    kept = keeping(request.backend)
    missing = await kept.missing(body.digests, caller.user, caller.sees)
    await request.answer(MissingAnswer(missing))


# Reading


async def describe_blob(request: Request) -> None:
    digest, caller, kept = _asked(request)
    if digest in kept.store and await kept.may_read(digest, caller.sees):
        await _start(request.send, 200, kept.store.size(digest), _described(digest))
    else:
        offset = kept.upload_offset(digest, caller.user)
        await _start(request.send, 404, 0, [(b"upload-offset", str(offset).encode())])
    await request.send({"type": "http.response.body", "body": b""})


async def download_blob(request: Request) -> None:
    digest, caller, kept = _asked(request)
    await _bring_here(kept, digest, caller)
    size = kept.store.size(digest)
    wanted_range = request.header(b"range")
    first, last = _range_of(wanted_range, size)
    headers = _described(digest)
    status = 200
    if (first, last) != (0, size - 1) and wanted_range is not None:
        status = 206
        headers.append((b"content-range", f"bytes {first}-{last}/{size}".encode()))
    with kept.store.reading(digest, first) as file:
        left = last + 1 - first
        await _start(request.send, status, left, headers)
        while left:
            data = await in_thread(kept.threads, partial(file.read, min(left, CHUNK_BYTES)))
            if not data:
                return  # cut short: the length that was announced tells the client
            left -= len(data)
            part = {"type": "http.response.body", "body": data, "more_body": bool(left)}
            await request.send(part)
    if size == 0:
        await request.send({"type": "http.response.body", "body": b""})


# Writing


async def upload_blob(request: Request) -> None:
    digest, caller, kept = _asked(request)
    first, size = _announced(request)
    try:
        async with kept.moving(digest):
            begin = partial(kept.begin_upload, digest, size, caller.user)
            taking = await in_thread(kept.threads, begin)
            await _take(kept, taking, first, request.receive)
            await kept.uploaded(digest, caller.user)
    except WrongContent as error:
        raise unprocessable(str(error)) from error
    except BlobTooLarge as error:
        raise Problem(413, str(error), headers=[(b"connection", b"close")]) from error
    except NoRoom as error:
        raise Problem(507, str(error), headers=[(b"connection", b"close")]) from error
    await request.answer(BlobAnswer(digest, size), 201)


def _asked(request: Request) -> tuple[Digest, Caller, SchedulerBlobs]:
    request.query()
    return _parsed(request.name), request.caller, keeping(request.backend)


async def _bring_here(kept: SchedulerBlobs, digest: Digest, caller: Caller) -> None:
    if digest in kept.store and await kept.may_read(digest, caller.sees):
        return
    try:
        if await kept.bring_home(digest, caller.sees):
            return
    except NoRoom as error:
        raise Problem(507, str(error)) from error
    except NoSuchBlob as error:
        raise Problem(503, str(error), headers=[(b"retry-after", b"5")]) from error
    except BlobGone as error:
        detail = f"its worker has kept it for as long as it had promised: {error}"
        raise Problem(404, detail) from error
    except BlobError as error:
        raise Problem(503, f"it lies with a worker: {error}") from error
    raise not_found(f"blob {digest} of yours")


async def _take(kept: SchedulerBlobs, taking: BlobSink, first: int, receive: Receive) -> None:
    with taking:
        if first > taking.offset:
            raise Problem(409, f"there are {taking.offset} bytes of it: go on from there")
        skip = taking.offset - first
        more = True
        try:
            while more:
                data, more = await _some(receive)
                if skip:  # what came before the connection broke, and comes again
                    dropped = min(skip, len(data))
                    data, skip = data[dropped:], skip - dropped
                if data:
                    await in_thread(kept.threads, partial(taking.write, data))
                    kept.traffic.received += len(data)
        except _CutOff as cut:
            await in_thread(kept.threads, partial(taking.write, cut.data[skip:]))
            raise Gone from None
        await in_thread(kept.threads, taking.finish)
        kept.traffic.blobs_received += 1


class _CutOff(Exception):
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data


async def _some(receive: Receive) -> tuple[bytes, bool]:
    """About a mebibyte of a body, and whether more follows: each write is a thread's turn."""
    parts: list[bytes] = []
    size, more = 0, True
    while more and size < CHUNK_BYTES:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                message = await receive()
        except TimeoutError:
            raise Problem(408, "the upload has stopped in the middle") from None
        if message["type"] == "http.disconnect":
            raise _CutOff(b"".join(parts))
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts), more


def _parsed(text: str) -> Digest:
    try:
        return digests.parse(text)
    except BadDigest as error:
        raise unprocessable(str(error)) from error


def _announced(request: Request) -> tuple[int, int]:
    """Where the body begins, and how long the whole blob is."""
    length = request.header(b"content-length")
    if length is None:
        raise Problem(411, "say how long it is: Content-Length is needed")
    ranged = request.header(b"content-range")
    if ranged is None:
        return 0, int(length)
    found = _CONTENT_RANGE.fullmatch(ranged)
    if found is None:
        raise unprocessable("Content-Range is such as 'bytes 100-199/200'")
    first, last, size = (int(number) for number in found.groups())
    if last + 1 != size or last + 1 - first != int(length):
        raise unprocessable("Content-Range has to reach to the end, and to fit Content-Length")
    return first, size


def _range_of(asked: bytes | None, size: int) -> tuple[int, int]:
    found = None if asked is None else _RANGE.fullmatch(asked)
    if found is None:
        return 0, size - 1
    first = int(found[1])
    last = min(size - 1, int(found[2]) if found[2] else size - 1)
    if first > last:
        raise Problem(
            416, f"it has {size} bytes", headers=[(b"content-range", b"bytes */%d" % size)]
        )
    return first, last


def _described(digest: Digest) -> Headers:
    return [
        (b"content-type", _BYTES),
        (b"etag", f'"{digest}"'.encode()),
        (b"accept-ranges", b"bytes"),
    ]


async def _start(send: Send, status: int, length: int, headers: Headers) -> None:
    fields = [*headers, (b"content-length", str(length).encode())]
    await send({"type": "http.response.start", "status": status, "headers": fields})
