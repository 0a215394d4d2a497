"""A worker's blobs: fetched once from the scheduler or another worker, kept while there is room.

    fetch ─▶ here? ─▶ the scheduler ─┬─▶ sends it
                                     └─▶ names workers that have it, with tickets ─▶ one of them

A transfer that breaks off is taken up where it broke, until patience ends. What a task uses is
pinned; the rest goes when room is needed, least recently used first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from mycel.core.identifiers import PeerId

from . import digests, tickets
from .blob_messages import BlobMessage, Elsewhere, Found, Get, Kept, Put, Refused, Wanted
from .blob_server import BlobServer
from .blob_store import BlobStore
from .blob_streams import Channel, expect
from .digests import Digest
from .errors import BlobRefused, TransferInterrupted
from .kept_outputs import KeptOutputs
from .transfer import answer_pieces, in_thread, receive

DELAY_SECONDS_MIN: Final = 0.1
DELAY_SECONDS_MAX: Final = 5.0
FETCH_PATIENCE_SECONDS: Final = 120.0
REFUSAL_PATIENCE_SECONDS: Final = 10.0
PUSH_PATIENCE_SECONDS: Final = 3600.0
"""The work is done: it is worth waiting for a scheduler that comes back."""


class TransferOwner(msgspec.Struct, frozen=True):
    """On whose behalf blobs are moved."""

    scheduler: PeerId
    attempt: int
    """As the scheduler numbers it."""


class WorkerBlobs(BlobServer):
    def __init__(
        self,
        store: BlobStore,
        note: Callable[..., None],
        *,
        key: bytes = b"",
        wall: Callable[[], float] = time.time,
        promises: KeptOutputs | None = None,
    ) -> None:
        super().__init__(store, note)
        self.promises = promises
        self._key = key or tickets.new_key()
        self._wall = wall

    async def fetch(self, digest: Digest, owner: TransferOwner) -> None:
        """Afterwards it is here and pinned, for the caller to unpin. Raises `BlobError`."""
        async with self.moving(digest):
            if digest in self.store:
                self.traffic.blobs_found += 1
                self.traffic.found += self.store.size(digest)
            else:
                patience = FETCH_PATIENCE_SECONDS
                await self._patiently(lambda: self._fetch(digest, owner), patience)
            self.store.pin(digest)

    async def push(self, digest: Digest, put: Put, owner: TransferOwner) -> None:
        """Afterwards it is on the scheduler's disk."""
        patience = PUSH_PATIENCE_SECONDS
        await self._patiently(lambda: self._push(digest, put, owner), patience)

    async def _patiently(
        self, attempt: Callable[[], Awaitable[None]], patience_seconds: float
    ) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        delay = DELAY_SECONDS_MIN
        while True:
            try:
                await attempt()
                return
            except (TransferInterrupted, BlobRefused) as error:
                patience = patience_seconds
                if isinstance(error, BlobRefused):  # it is there, and does not want to
                    patience = min(patience, REFUSAL_PATIENCE_SECONDS if error.again else 0.0)
                if loop.time() + delay > began + patience:
                    raise
                self._note("blob_transfer_interrupted", error=str(error), again_in_seconds=delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, DELAY_SECONDS_MAX)

    async def _fetch(self, digest: Digest, owner: TransferOwner) -> None:
        asking = Get(digest, owner.attempt, key=self._key)
        elsewhere = await self._from(owner.scheduler, (), digest, asking)
        if elsewhere is None:
            return
        for place in elsewhere.places:
            asking = Get(digest, ticket=place.ticket, ends_at=place.ends_at)
            try:
                await self._from(PeerId(place.peer), place.addresses, digest, asking)
            except (TransferInterrupted, BlobRefused) as error:
                self._note("blob_not_found_there", peer=place.peer, error=str(error))
            else:
                return
        insisting = Get(digest, owner.attempt, key=self._key, insist=True)
        if await self._from(owner.scheduler, (), digest, insisting) is not None:
            raise BlobRefused(f"no worker that keeps {digest} gives it", again=True)

    async def _from(
        self, peer: PeerId, addresses: tuple[str, ...], digest: Digest, asking: Get
    ) -> Elsewhere | None:
        channel = await self.channels.open(peer, addresses)
        try:
            channel.write(asking)
            answer = await expect(channel, BlobMessage)
            if isinstance(answer, Elsewhere):
                return answer
            if not isinstance(answer, Found):
                raise TransferInterrupted(f"{peer} answered with {type(answer).__name__}")
            size = answer.size
            incoming = await in_thread(self.threads, lambda: self.store.begin(digest, size))
            await receive(channel, incoming, self.threads, self.traffic)
            channel.write(Kept())
            return None
        finally:
            channel.close()

    async def _push(self, digest: Digest, put: Put, owner: TransferOwner) -> None:
        channel = await self.channels.open(owner.scheduler)
        try:
            channel.write(msgspec.structs.replace(put, key=self._key))
            answer: object = await expect(channel, BlobMessage)
            if isinstance(answer, Wanted):
                answer = await answer_pieces(
                    channel, self.store, digest, self.threads, self.traffic
                )
            else:
                self.traffic.found += put.size
                self.traffic.blobs_found += 1
            if isinstance(answer, Refused):
                raise BlobRefused(answer.reason, again=answer.again)
            if not isinstance(answer, Kept):
                raise TransferInterrupted(f"the scheduler answered with {type(answer).__name__}")
        finally:
            channel.close()

    async def answer(self, channel: Channel, first: BlobMessage) -> None:
        if not isinstance(first, Get):
            channel.write(Refused("a worker is asked for blobs, and given none"))
            return
        digest = digests.parse(first.digest)
        now = self._wall()
        if not tickets.is_good(self._key, digest, channel.peer, first.ends_at, first.ticket, now):
            channel.write(Refused("the scheduler has not allowed that"))
        elif digest not in self.store:
            channel.write(Refused(f"{digest} is not here any more", gone=True))
        else:
            channel.write(Found(self.store.size(digest)))
            await answer_pieces(channel, self.store, digest, self.threads, self.traffic)
