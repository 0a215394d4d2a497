"""What a scheduler's and a worker's blob streams have in common: who is served, and for how
long; one transfer of a blob at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from blake3 import blake3

from mycel.core.principal import Family, Tally

from . import digests
from .blob_messages import BlobMessage, Unreadable
from .blob_store import BlobStore
from .blob_streams import Channel, Channels, Frame
from .digests import Digest
from .errors import BlobError, WrongContent
from .transfer import THREADS, Traffic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Value = TypeVar("Value")
SERVED_MAX: Final = 64
"""Streams of one peer at once; its family has its shares of them."""


class _Turn:
    """Who moves a blob, and how many want to."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


class BlobServer:
    """Owns its tasks: `stop` ends them all."""

    def __init__(self, store: BlobStore, note: Callable[..., None]) -> None:
        self.store = store
        self.traffic = Traffic()
        self.channels = Channels(self._accept)
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="blobs")
        self._note = note
        self._served = Tally(SERVED_MAX)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._moving: dict[Digest, _Turn] = {}

    async def stop(self) -> None:
        self.channels.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.threads.shutdown(wait=True)

    def spawn(self, work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def is_moving(self, digest: Digest) -> bool:
        return digest in self._moving

    @asynccontextmanager
    async def moving(self, digest: Digest) -> AsyncIterator[None]:
        """Nobody else moves that blob meanwhile; whoever comes next finds it here."""
        turn = self._moving.setdefault(digest, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._moving[digest]

    def _accept(self, channel: Channel) -> None:
        family = self.channels.family_of(channel.peer)
        if not self._served.has_room(channel.peer, family):
            channel.close()
            return
        self._served.take(channel.peer, family)
        self.spawn(self._serve(channel, family))

    async def _serve(self, channel: Channel, family: Family | None) -> None:
        try:
            await self.answer(channel, await channel.read())
        except (BlobError, Unreadable, OSError) as error:
            self._note("blob_stream_ended", peer=channel.peer, error=str(error))
        finally:
            channel.close()
            self._served.give_back(channel.peer, family)

    async def answer(self, channel: Channel, first: BlobMessage) -> None:
        raise NotImplementedError


class PossessionCheck:
    """Takes a blob in that is here already, to see that its sender has it. Like `Incoming`."""

    def __init__(self, digest: Digest, size: int) -> None:
        self.digest = digest
        self.size = size
        self.offset = 0
        self._hash = blake3()

    def __enter__(self) -> PossessionCheck:
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def write(self, data: Frame) -> None:
        self._hash.update(data)
        self.offset += len(data)

    def finish(self) -> None:
        if self.offset != self.size or self._hash.hexdigest() != digests.hexadecimal(self.digest):
            raise WrongContent(f"what arrived as {self.digest} is something else")
