"""A scheduler's blobs: brought by users and by workers, kept while somebody has a claim on them.

A user may read what it uploaded and what belongs to its jobs; a worker, while it holds a task,
what belongs to that task's job. Nobody gets a claim by naming a digest: who brings a blob that is
here already sends it once more, or has a claim on it already.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from mycel.core.identifiers import JobId, PeerId

from . import digests, tickets, trees
from .blob_messages import (
    BlobMessage,
    Elsewhere,
    Found,
    Get,
    Kept,
    Place,
    Put,
    Refused,
    Wanted,
)
from .blob_server import BlobServer, PossessionCheck
from .blob_store import BlobStore
from .blob_streams import Channel, expect
from .claims import BlobClaims, OutputsRecord
from .digests import Digest
from .errors import BlobError, BlobTooLarge, NoRoom, NoSuchBlob
from .transfer import BlobSink, answer_pieces, in_thread, receive

SWEEP_SECONDS: Final = 600.0
FIRST_SWEEP_SECONDS: Final = 60.0
JOB_GRACE_SECONDS: Final = 3600.0
"""A job that is noted here and not known after so long was never accepted."""
SHARED_BYTES_MIN: Final = 4 << 20
"""A blob of this size is better fetched from a worker that has it, while we are busy."""
BUSY_SENDING: Final = 2
PLACES_MAX: Final = 3

Sees = Callable[[str], bool]
"""Whether whoever asks may see what is this user's."""
Value = TypeVar("Value")


class MissingBlobs(BlobError):
    """A job names blobs that its user has not brought."""

    def __init__(self, digests: list[str]) -> None:
        shown = ", ".join(digests[:10]) + (", …" if len(digests) > 10 else "")
        super().__init__(f"{len(digests)} blobs are missing, upload them first: {shown}")
        self.digests = digests


class SchedulerView:
    """What the scheduler knows of tasks and workers; set by its role."""

    task_of: Callable[[PeerId, int], tuple[JobId, int] | None]
    """The job and index of an assignment, if that worker holds it."""
    user_of: Callable[[str], str | None]
    addresses_of: Callable[[PeerId], tuple[str, ...]]
    holds: Callable[[PeerId, str, int, float], None]
    """Is told of each blob that a worker has in its cache, or is about to have: its size, and
    how many seconds it took to move it from here, or 0."""


class SchedulerBlobs(BlobServer):
    def __init__(
        self,
        store: BlobStore,
        book: BlobClaims,
        world: SchedulerView,
        note: Callable[..., None],
        *,
        upload_seconds: float = 86_400.0,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(store, note)
        self._book = book
        self._world = world
        self._upload_seconds = upload_seconds
        self._wall = wall
        self._clerk = ThreadPoolExecutor(1, thread_name_prefix="blob-book")
        self._keys = book.keys()
        self._holders: dict[Digest, dict[PeerId, None]] = {}
        self._sending = 0
        self._partials: dict[Digest, str] = {}
        """Whose upload broke off: nobody else may go on with it, or a tail would be enough."""

    def limit(self, bytes_max: int, blob_bytes_max: int, upload_seconds: float) -> None:
        """While it runs."""
        self.store.limit(bytes_max, blob_bytes_max)
        self._upload_seconds = upload_seconds

    def start(self) -> None:
        self.spawn(self._sweep_for_ever())

    async def stop(self) -> None:
        await super().stop()
        self._clerk.shutdown(wait=True)
        self._book.close()

    async def _noted(self, look: Callable[[BlobClaims], Value]) -> Value:
        return await in_thread(self._clerk, lambda: look(self._book))

    # Users

    async def may_read(self, digest: Digest, sees: Sees) -> bool:
        return await self._noted(lambda book: self._sees(book, digest, sees))

    def _sees(self, book: BlobClaims, digest: str, sees: Sees) -> bool:
        if any(sees(user) for user in book.uploaders(digest)):
            return True
        return any(self._sees_job(job, sees) for job in book.jobs_of(digest))

    def _sees_job(self, job: str, sees: Sees) -> bool:
        user = self._world.user_of(job)
        return user is not None and sees(user)

    async def missing(self, names: Iterable[str], user: str, sees: Sees) -> list[str]:
        """Which of them this user would have to bring. The others stay for another day."""
        wanted = list(dict.fromkeys(names))

        def look(book: BlobClaims) -> list[str]:
            here = [one for one in wanted if Digest(one) in self.store]
            readable = {one for one in here if self._sees(book, one, sees)}
            book.uploaded(readable, user, self._wall())
            return [one for one in wanted if one not in readable]

        return await self._noted(look)

    async def admit(self, job: JobId, names: Iterable[tuple[str, bool]], sees: Sees) -> None:
        """Before a job is accepted: all that it names (a digest, and whether it is a list of
        files) is here and its user's, and stays. Raises `MissingBlobs`, `BadTree`."""
        asked = list(dict.fromkeys(names))
        lists = [Digest(name) for name, is_list in asked if is_list]

        def look(book: BlobClaims) -> None:
            missing, used, kept = [], [], []
            named = [name for name, _ in asked]
            for one in lists:
                if one in self.store and self._sees(book, one, sees):
                    named += [file.digest for file in self._tree(one).files]
            for name in dict.fromkeys(named):
                if Digest(name) in self.store and self._sees(book, name, sees):
                    used.append(name)
                    continue
                keepers = book.keepers(name)
                keeper = next((peer for job, peer in keepers if self._sees_job(job, sees)), "")
                if keeper:
                    kept.append((name, keeper))
                else:
                    missing.append(name)
            if missing:
                raise MissingBlobs(missing)
            book.used(job, used, self._wall())
            book.kept(job, kept, self._wall())

        await self._noted(look)

    def _tree(self, digest: Digest) -> trees.Tree:
        with self.store.reading(digest) as file:
            return trees.decode(file.read())

    async def outputs_of(self, job: str, index: int, attempt: int) -> OutputsRecord | None:
        return await self._noted(lambda book: book.outputs(job, index, attempt))

    async def outputs_of_job(
        self, job: str, first: int, limit: int
    ) -> dict[tuple[int, int], OutputsRecord]:
        """Of the tasks `first` … `first + limit - 1`, by task and attempt."""
        found = await self._noted(lambda book: book.outputs_of_job(job, first, limit))
        return {(one.index, one.attempt): one for one in found}

    async def bring_home(self, digest: Digest, sees: Sees) -> bool:
        """Fetches a blob that lies with a worker; False if none has it for this user."""
        keepers = await self._noted(lambda book: book.keepers(digest))
        for job, worker in keepers:
            if not self._sees_job(job, sees):
                continue
            async with self.moving(digest):
                if digest not in self.store:
                    await self._fetch(digest, PeerId(worker))
                await self._claim(job, digest)
            return True
        return False

    async def _claim(self, job: str, digest: Digest) -> None:
        await self._noted(lambda book: book.used(job, [digest], self._wall()))

    async def _fetch(self, digest: Digest, worker: PeerId) -> None:
        key = self._keys.get(worker)
        if key is None:
            raise NoSuchBlob(f"{digest} lies with worker {worker}, which is away")
        ends_at = self._wall() + tickets.TICKET_SECONDS
        channel = await self.channels.open(worker, self._world.addresses_of(worker))
        try:
            shown = tickets.ticket(key, digest, self.channels.peer, ends_at)
            channel.write(Get(digest, ticket=shown, ends_at=ends_at))
            found = await expect(channel, Found)
            incoming = await in_thread(self.threads, lambda: self.store.begin(digest, found.size))
            await receive(channel, incoming, self.threads, self.traffic)
            channel.write(Kept())
        finally:
            channel.close()

    # Uploads

    def upload_offset(self, digest: Digest, user: str) -> int:
        """How much of it this user has brought before the connection broke."""
        return self.store.arrived(digest) if self._partials.get(digest) == user else 0

    def begin_upload(self, digest: Digest, size: int, user: str) -> BlobSink:
        """What takes it in, like `Incoming`; within `moving`."""
        if digest in self.store:
            self.store.check_size(digest, size)
            return PossessionCheck(digest, size)
        if self._partials.get(digest) != user:
            self.store.drop_partial(digest)
        self._partials[digest] = user
        return self.store.begin(digest, size)

    async def uploaded(self, digest: Digest, user: str) -> None:
        """Within `moving` too: before that is over, nobody forgets it."""
        self._partials.pop(digest, None)
        await self._noted(lambda book: book.uploaded([digest], user, self._wall()))

    # Workers

    async def answer(self, channel: Channel, first: BlobMessage) -> None:
        match first:
            case Get():
                await self._give(channel, first)
            case Put():
                await self._take(channel, first)
            case _:
                channel.write(Refused("begin with get or put"))

    async def _give(self, channel: Channel, get: Get) -> None:
        digest = digests.parse(get.digest)
        await self._learn(channel.peer, get.key)
        task = self._world.task_of(channel.peer, get.attempt)
        if task is None:
            channel.write(Refused("this worker holds no such task", again=True))
            return
        job = task[0]
        used, keeper = await self._noted(
            lambda book: (book.is_used(job, digest), book.keeper(job, digest))
        )
        if keeper and digest not in self.store:
            await self._point_to(channel, digest, PeerId(keeper))
        elif not used:
            channel.write(Refused(f"{digest} does not belong to job {job}"))
        elif digest not in self.store:
            channel.write(Refused(f"{digest} is gone from the scheduler"))
        else:
            places = () if get.insist else self._places(channel.peer, digest)
            if places:
                channel.write(Elsewhere(places))
                self._world.holds(channel.peer, digest, self.store.size(digest), 0.0)
            else:
                await self._send(channel, digest)

    async def _learn(self, worker: PeerId, key: bytes) -> None:
        """The key of a worker's cache."""
        if len(key) == tickets.KEY_BYTES and self._keys.get(worker) != key:
            self._keys[worker] = key
            await self._noted(lambda book: book.key_of(worker, key))

    async def _point_to(self, channel: Channel, digest: Digest, keeper: PeerId) -> None:
        places = self._tickets(channel.peer, digest, [keeper])
        if places:
            channel.write(Elsewhere(places))
        else:
            channel.write(Refused(f"{digest} lies with {keeper}, which is away", again=True))

    def _places(self, asker: PeerId, digest: Digest) -> tuple[Place, ...]:
        if self._sending < BUSY_SENDING or self.store.size(digest) < SHARED_BYTES_MIN:
            return ()
        return self._tickets(asker, digest, list(self._holders.get(digest, ())))

    def _tickets(self, asker: PeerId, digest: Digest, holders: list[PeerId]) -> tuple[Place, ...]:
        ends_at = self._wall() + tickets.TICKET_SECONDS
        return tuple(
            Place(
                holder,
                self._world.addresses_of(holder),
                tickets.ticket(self._keys[holder], digest, asker, ends_at),
                ends_at,
            )
            for holder in holders
            if holder != asker and holder in self._keys and self._world.addresses_of(holder)
        )[:PLACES_MAX]

    async def _send(self, channel: Channel, digest: Digest) -> None:
        channel.write(Found(self.store.size(digest)))
        self._sending += 1
        began = time.monotonic()
        try:
            last = await answer_pieces(channel, self.store, digest, self.threads, self.traffic)
        finally:
            self._sending -= 1
        if isinstance(last, Kept):
            self._is_held(digest, channel.peer, time.monotonic() - began)

    async def _take(self, channel: Channel, put: Put) -> None:
        digest = digests.parse(put.digest)
        await self._learn(channel.peer, put.key)
        task = self._world.task_of(channel.peer, put.attempt)
        if task is None:
            channel.write(Refused("this worker holds no such task", again=True))
            return
        job = task[0]
        try:
            async with self.moving(digest):
                await self._take_in(channel, digest, put.size, job)
                await self._claim(job, digest)
            if put.is_list:
                await self._noted(lambda book: self._note_outputs(book, channel.peer, put, task))
        except (NoRoom, BlobTooLarge) as error:
            channel.write(Refused(str(error), again=isinstance(error, NoRoom)))
            return
        self._is_held(digest, channel.peer)
        channel.write(Kept())

    def _is_held(self, digest: Digest, worker: PeerId, seconds: float = 0.0) -> None:
        """`seconds` is what it took to move it there."""
        self._holders.setdefault(digest, {})[worker] = None
        self._world.holds(worker, digest, self.store.size(digest), seconds)

    async def _take_in(self, channel: Channel, digest: Digest, size: int, job: JobId) -> None:
        user = self._world.user_of(job)
        if digest in self.store:
            if await self.may_read(digest, lambda owner: owner == user):
                self.traffic.found += size
                self.traffic.blobs_found += 1
                return
            self.store.check_size(digest, size)
            taking: BlobSink = PossessionCheck(digest, size)
        else:
            taking = await in_thread(self.threads, lambda: self.store.begin(digest, size))
        channel.write(Wanted())
        await receive(channel, taking, self.threads, self.traffic)

    def _note_outputs(
        self, book: BlobClaims, worker: PeerId, put: Put, task: tuple[JobId, int]
    ) -> None:
        job, index = task
        tree = self._tree(Digest(put.digest))
        names = [file.digest for file in tree.files]
        stays = put.keep == "worker"
        if not stays and not all(book.is_used(job, name) for name in names):
            raise NoSuchBlob("a list of outputs names what did not come with them")
        size = sum(file.size for file in tree.files)
        keeper = worker if stays else ""
        record = OutputsRecord(job, index, put.attempt, put.digest, len(names), size, keeper)
        book.put_out(record, names, self._wall())

    # Forgetting

    async def _sweep_for_ever(self) -> None:
        await asyncio.sleep(FIRST_SWEEP_SECONDS)
        while True:
            await self.sweep()
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> int:
        """Removes what nobody has a claim on any more; how many blobs that were."""
        now = self._wall()

        def look(book: BlobClaims) -> int:
            known = self._world.user_of
            book.forget(
                lambda job: known(job) is not None,
                now - self._upload_seconds,
                now - JOB_GRACE_SECONDS,
            )
            gone = 0
            for digest in book.unwanted(self.store.digests()):
                if self.is_moving(digest):  # it is here, and about to be noted
                    continue
                try:
                    self.store.remove(digest)
                except NoRoom:  # it is being read
                    continue
                gone += 1
            return gone

        removed = await self._noted(look)
        store = self.store
        self._holders = {one: who for one, who in self._holders.items() if one in store}
        self._partials = {one: who for one, who in self._partials.items() if store.arrived(one)}
        if removed:
            self._note("blobs_removed", count=removed)
        return removed
