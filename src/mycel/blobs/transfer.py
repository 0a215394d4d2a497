"""Moving one blob over one channel: the end that receives asks, the other end answers.

Files are read, written, hashed and synced in threads: nobody else's event waits for a disk.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from .blob_messages import PIECE_BYTES, PIECES_AHEAD, Piece
from .blob_store import BlobStore
from .blob_streams import Channel, Frame
from .digests import Digest
from .errors import TransferInterrupted

Value = TypeVar("Value")
Progress = Callable[[int], None]
"""Is told how many bytes have come since the last time."""
THREADS: Final = 4
WRITTEN_BYTES: Final = 1 << 20
"""In one turn of a thread, or a little more: a turn costs as much as writing some ten frames."""


class Traffic(msgspec.Struct):
    """Bytes since the start, for the metrics."""

    sent: int = 0
    received: int = 0
    found: int = 0
    """That need not be moved, because they were there."""
    blobs_sent: int = 0
    blobs_received: int = 0
    blobs_found: int = 0


class BlobSink(Protocol):
    """What takes a blob in: `blob_store.Incoming`, or `blob_server.PossessionCheck`."""

    @property
    def size(self) -> int: ...
    @property
    def offset(self) -> int: ...
    def __enter__(self) -> object: ...
    def __exit__(self, *failure: object) -> None: ...
    def write(self, data: Frame) -> None: ...
    def finish(self) -> None: ...


async def in_thread(
    threads: Executor, do: Callable[[], Value], stop: threading.Event | None = None
) -> Value:
    """Whoever is cancelled meanwhile waits for the thread: it has the caller's files. What may
    take long looks at `stop`, which is set then."""
    future = asyncio.get_running_loop().run_in_executor(threads, do)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        await asyncio.wait([future])
        raise


async def receive(
    channel: Channel, incoming: BlobSink, threads: Executor, traffic: Traffic
) -> None:
    """Asks for what is missing, and keeps it; the blob is whole and on disk afterwards. What has
    come of one that breaks off stays, for the next time."""
    asked = incoming.offset
    with incoming:
        while incoming.offset < incoming.size:
            while asked < incoming.size and asked - incoming.offset < PIECES_AHEAD * PIECE_BYTES:
                length = min(PIECE_BYTES, incoming.size - asked)
                channel.write(Piece(asked, length))
                asked += length
            wanted = min(WRITTEN_BYTES, asked - incoming.offset)
            frames = await channel.read_all(wanted)
            await in_thread(threads, partial(_write, incoming, frames))
            traffic.received += sum(map(len, frames))
        await in_thread(threads, incoming.finish)
    traffic.blobs_received += 1


def _write(incoming: BlobSink, frames: list[Frame]) -> None:
    for data in frames:
        if not data:
            raise TransferInterrupted("the other end sends nothing")
        incoming.write(data)


async def answer_pieces(
    channel: Channel, store: BlobStore, digest: Digest, threads: Executor, traffic: Traffic
) -> object:
    """Sends what is asked for, until the other end says something else, which is returned."""
    with store.pinned(digest):
        descriptor = os.open(store.path(digest), os.O_RDONLY)
        try:
            while True:
                message = await channel.read()
                if not isinstance(message, Piece):
                    traffic.blobs_sent += 1
                    return message
                await _send_piece(channel, descriptor, message, threads, traffic)
        finally:
            os.close(descriptor)


async def _send_piece(
    channel: Channel, descriptor: int, piece: Piece, threads: Executor, traffic: Traffic
) -> None:
    offset = max(0, piece.offset)
    end = offset + min(max(0, piece.length), PIECE_BYTES)
    if end > os.fstat(descriptor).st_size:
        raise TransferInterrupted("it was asked for more than there is")
    while offset < end:
        queued = await in_thread(threads, partial(channel.queue_file, descriptor, offset, end))
        await channel.room()
        offset += queued
        traffic.sent += queued
