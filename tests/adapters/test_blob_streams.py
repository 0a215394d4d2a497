"""Blobs between real nodes: fetched, pushed, taken up where they broke, and never for a digest
alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.bench.swarm.node_host import start_node
from mycel.blobs import digests, tickets, trees
from mycel.blobs.blob_messages import (
    FRAME_BYTES,
    BlobMessage,
    Get,
    Kept,
    Piece,
    Put,
    Unreadable,
    decode,
    encode,
)
from mycel.blobs.blob_server import BlobServer
from mycel.blobs.blob_store import BlobStore
from mycel.blobs.blob_streams import Channel
from mycel.blobs.claims import BlobClaims
from mycel.blobs.digests import Digest
from mycel.blobs.errors import BlobRefused, TransferInterrupted
from mycel.blobs.scheduler_blobs import (
    JOB_GRACE_SECONDS,
    MissingBlobs,
    SchedulerBlobs,
    SchedulerView,
)
from mycel.blobs.trees import Tree, TreeFile
from mycel.blobs.worker_blobs import TransferOwner, WorkerBlobs
from mycel.core.identifiers import JobId, PeerId
from mycel.swarm.libp2p import Libp2pSwarm
from mycel.testing.blobs.blob_listener import BlobListener

MINE, THEIRS = JobId("mine"), JobId("theirs")
USERS = {MINE: "alice", THEIRS: "bob"}
SIZE = 12 << 20

Scenario = Callable[["Stage"], Awaitable[None]]


def alice(user: str) -> bool:
    return user == "alice"


def bob(user: str) -> bool:
    return user == "bob"


class Scheduler(SchedulerBlobs):
    """One that can be told to break off."""

    breaks_off_after: int | None = None

    async def _send(self, channel: Channel, digest: Digest) -> None:
        limit, self.breaks_off_after = self.breaks_off_after, None
        if limit is not None:
            room = channel.room

            async def room_for_some() -> None:
                await room()
                if self.traffic.sent >= limit:
                    raise TransferInterrupted("broken off by the test")

            channel.room = room_for_some  # type: ignore[method-assign]
        await super()._send(channel, digest)


class Stage:
    """A scheduler, and workers of which each holds the tasks that it is said to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner = os.urandom(32)
        self.tasks: dict[tuple[PeerId, int], tuple[JobId, int]] = {}
        self.now = 1_000_000.0
        world = SchedulerView()
        world.task_of = lambda peer, attempt: self.tasks.get((peer, attempt))
        world.user_of = lambda job: USERS.get(JobId(job))
        world.addresses_of = lambda peer: self.addresses.get(peer, ())
        self.addresses: dict[PeerId, tuple[str, ...]] = {}
        self.held: list[tuple[PeerId, str]] = []
        world.holds = lambda peer, digest, *_: self.held.append((peer, digest))
        store = BlobStore(folder / "scheduler", 200 << 20, evicts=False)
        book = BlobClaims(folder / "book.db")
        self.keeping = Scheduler(store, book, world, _silent, wall=lambda: self.now)
        self.swarms: list[tuple[BlobServer, Libp2pSwarm]] = []

    async def join(self, node: BlobServer) -> PeerId:
        listener = BlobListener(node.channels)
        swarm = await start_node(listener, self.owner, "worker", "/ip4/127.0.0.1/tcp/0")
        listener.start(swarm)
        self.swarms.append((node, swarm))
        self.addresses[swarm.peer] = tuple(swarm.addresses)
        return swarm.peer

    async def worker(self, name: str) -> tuple[WorkerBlobs, PeerId]:
        caching = WorkerBlobs(
            BlobStore(self.folder / name, 100 << 20), _silent, wall=lambda: self.now
        )
        peer = await self.join(caching)
        scheduler = self.swarms[0][1].peer
        channel = await caching.channels.open(scheduler, self.addresses[scheduler])
        channel.close()
        return caching, peer

    def transfer_owner(
        self, peer: PeerId, attempt: int, job: JobId = MINE, index: int = 0
    ) -> TransferOwner:
        self.tasks[peer, attempt] = (job, index)
        return TransferOwner(self.swarms[0][1].peer, attempt)

    async def bring(self, data: bytes, job: JobId = MINE) -> Digest:
        digest = self.keeping.store.put(data)
        await self.keeping._claim(job, digest)
        return digest


def _silent(_event: str, **_fields: Any) -> None:
    pass


@asynccontextmanager
async def stage_in(folder: Path) -> AsyncIterator[Stage]:
    stage = Stage(folder)
    await stage.join(stage.keeping)
    try:
        yield stage
    finally:
        for node, swarm in stage.swarms:
            await node.stop()
            await swarm.stop()


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        async def on_stage() -> None:
            async with stage_in(tmp_path) as stage:
                async with asyncio.timeout(30):
                    await scenario(stage)

        asyncio.run(on_stage())

    return run


Play = Callable[[Scenario], None]


class TestFetching:
    def test_a_blob_comes_once(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            data = os.urandom(SIZE)
            digest = await stage.bring(data)
            worker, peer = await stage.worker("one")
            await worker.fetch(digest, stage.transfer_owner(peer, 1))
            with worker.store.reading(digest) as file:
                assert file.read() == data
            await worker.fetch(digest, stage.transfer_owner(peer, 2))
            assert worker.traffic.received == stage.keeping.traffic.sent == SIZE
            assert worker.traffic.blobs_found == 1

        play(scenario)

    def test_one_that_breaks_off_goes_on_where_it_broke(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            digest = await stage.bring(os.urandom(SIZE))
            stage.keeping.breaks_off_after = 3 << 20
            worker, peer = await stage.worker("one")
            await worker.fetch(digest, stage.transfer_owner(peer, 1))
            assert digest in worker.store
            assert stage.keeping.breaks_off_after is None
            assert worker.traffic.received == SIZE

        play(scenario)

    def test_many_at_once_move_one_blob_once(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            digest = await stage.bring(os.urandom(1 << 20))
            worker, peer = await stage.worker("one")
            owner = stage.transfer_owner(peer, 1)
            await asyncio.gather(*(worker.fetch(digest, owner) for _ in range(10)))
            assert worker.traffic.received == 1 << 20

        play(scenario)

    def test_only_one_moves_a_blob_whoever_gives_up(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            digest = digests.of_bytes(b"x")
            moving, most = 0, 0

            async def move(fails: bool) -> None:
                nonlocal moving, most
                async with stage.keeping.moving(digest):
                    moving += 1
                    most = max(most, moving)
                    await asyncio.sleep(0)
                    moving -= 1
                    if fails:
                        raise TransferInterrupted("given up")

            tasks = [asyncio.create_task(move(number % 2 == 0)) for number in range(6)]
            await asyncio.sleep(0)
            tasks.append(asyncio.create_task(move(False)))
            tasks[3].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert most == 1
            assert not stage.keeping.is_moving(digest)

        play(scenario)

    def test_a_worker_gets_what_belongs_to_a_task_that_it_holds_and_nothing_else(
        self, play: Play
    ) -> None:
        async def scenario(stage: Stage) -> None:
            digest = await stage.bring(b"secret", THEIRS)
            worker, peer = await stage.worker("one")
            with pytest.raises(BlobRefused, match="does not belong"):
                await worker.fetch(digest, stage.transfer_owner(peer, 1, MINE))
            other, _ = await stage.worker("two")
            channel = await other.channels.open(stage.swarms[0][1].peer)
            channel.write(Get(digest, 1))
            assert "no such task" in str(await channel.read())
            await worker.fetch(digest, stage.transfer_owner(peer, 2, THEIRS))

        play(scenario)

    def test_a_blob_that_is_gone_is_not_waited_for(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            digest = await stage.bring(b"here")
            stage.keeping.store.remove(digest)
            worker, peer = await stage.worker("one")
            with pytest.raises(BlobRefused, match="gone"):
                await worker.fetch(digest, stage.transfer_owner(peer, 1))

        play(scenario)

    def test_another_worker_gives_it_to_whom_the_scheduler_has_sent(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            digest = await stage.bring(os.urandom(SIZE))
            one, first = await stage.worker("one")
            await one.fetch(digest, stage.transfer_owner(first, 1))
            stage.keeping._sending = 100
            two, second = await stage.worker("two")
            await two.fetch(digest, stage.transfer_owner(second, 2))
            assert digest in two.store
            assert one.traffic.sent == SIZE
            assert stage.keeping.traffic.sent == SIZE
            three, _ = await stage.worker("three")
            for shown in (b"", tickets.ticket(os.urandom(32), digest, "x", stage.now + 99)):
                channel = await three.channels.open(first, stage.addresses[first])
                channel.write(Get(digest, ticket=shown, ends_at=stage.now + 99))
                assert "not allowed" in str(await channel.read())

        play(scenario)


class TestBringingHome:
    def test_outputs_are_the_jobs_and_have_their_list(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            worker, peer = await stage.worker("one")
            owner = stage.transfer_owner(peer, 7, MINE, 3)
            digest = worker.store.put(b"result")
            await worker.push(digest, Put(digest, 6, 7), owner)
            encoded = trees.encode(Tree([TreeFile("out", digest, 6)]))
            listed = worker.store.put(encoded)
            await worker.push(listed, Put(listed, len(encoded), 7, is_list=True), owner)
            left = await stage.keeping.outputs_of(MINE, 3, 7)
            assert left is not None
            assert (left.digest, left.files, left.size) == (listed, 1, 6)
            assert await stage.keeping.may_read(digest, alice)
            assert not await stage.keeping.may_read(digest, bob)

        play(scenario)

    def test_long_frames_are_read_where_they_arrived(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            content = os.urandom(300_000)
            digest = await stage.bring(content, MINE)
            worker, peer = await stage.worker("one")
            channel = await worker.channels.open(stage.transfer_owner(peer, 1).scheduler)
            channel.write(Get(digest, 1))
            await channel.read()
            channel.write(Piece(1000, len(content) - 1000))
            frames = await channel.read_all(len(content) - 1000)
            assert b"".join(frames) == content[1000:]
            assert max(map(len, frames)) == FRAME_BYTES
            with pytest.raises(TypeError, match="read-only"):
                memoryview(frames[0])[0] = 0
            channel.close()

        play(scenario)

    def test_who_claims_a_blob_that_is_here_has_to_send_it(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            secret = await stage.bring(b"of bob", THEIRS)
            worker, peer = await stage.worker("one")
            owner = stage.transfer_owner(peer, 1, MINE)
            channel = await worker.channels.open(owner.scheduler)
            channel.write(Put(secret, 6, 1))
            assert "Wanted" in str(await channel.read())
            await channel.read()
            channel._stream.write(b"a lie!")
            with pytest.raises(TransferInterrupted):
                await channel.read()
            assert not await stage.keeping.may_read(secret, alice)
            encoded = trees.encode(Tree([TreeFile("out", secret, 6)]))
            listed = worker.store.put(encoded)
            with pytest.raises((TransferInterrupted, BlobRefused)):
                await worker._push(listed, Put(listed, len(encoded), 1, is_list=True), owner)
            assert not await stage.keeping.may_read(secret, alice)
            await worker.push(worker.store.put(b"of bob"), Put(secret, 6, 1), owner)
            assert await stage.keeping.may_read(secret, alice)

        play(scenario)

    def test_what_stays_with_its_worker_is_had_from_that_worker_alone(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            secret = await stage.bring(b"of bob", THEIRS)
            worker, peer = await stage.worker("one")
            owner = stage.transfer_owner(peer, 1, MINE)
            mine = worker.store.put(b"mine")
            files = [TreeFile("a", mine, 4), TreeFile("b", secret, 6)]
            encoded = trees.encode(Tree(files))
            listed = worker.store.put(encoded)
            put = Put(listed, len(encoded), 1, is_list=True, keep="worker")
            await worker.push(listed, put, owner)
            assert mine not in stage.keeping.store
            assert not await stage.keeping.may_read(secret, alice)
            assert await stage.keeping.bring_home(mine, alice)
            assert await stage.keeping.may_read(mine, alice)
            assert not await stage.keeping.bring_home(mine, bob)

        play(scenario)


class TestKeeping:
    def test_a_job_needs_all_that_it_names(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            keeping = stage.keeping
            here, absent = await stage.bring(b"1"), digests.of_bytes(b"2")
            tree = Tree([TreeFile("one", here, 1), TreeFile("two", absent, 1)])
            listed = await stage.bring(trees.encode(tree))
            with pytest.raises(MissingBlobs, match=absent):
                await keeping.admit(MINE, [(listed, True)], alice)
            with pytest.raises(MissingBlobs, match=here):
                await keeping.admit(THEIRS, [(here, False)], bob)
            await stage.bring(b"2")
            await keeping.admit(MINE, [(listed, True)], alice)

        play(scenario)

    def test_what_nobody_has_a_claim_on_goes(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            keeping = stage.keeping
            used = await stage.bring(b"used")
            of_a_job_that_was_never_accepted = await stage.bring(b"lost", JobId("never"))
            uploaded = keeping.store.put(b"uploaded")
            await keeping.uploaded(uploaded, "alice")
            assert await keeping.sweep() == 0
            stage.now += JOB_GRACE_SECONDS + 1
            assert await keeping.sweep() == 1
            assert of_a_job_that_was_never_accepted not in keeping.store
            assert await keeping.missing([uploaded], "alice", alice) == []
            stage.now += 86_000
            assert await keeping.sweep() == 0, "asked for yesterday, so it stays for another day"
            stage.now += 1000
            assert await keeping.sweep() == 1
            assert uploaded not in keeping.store
            assert used in keeping.store

        play(scenario)

    def test_only_who_began_an_upload_goes_on_with_it(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            keeping = stage.keeping
            digest = digests.of_bytes(b"x" * 100)
            with keeping.begin_upload(digest, 100, "alice") as taking:
                taking.write(b"x" * 90)  # type: ignore[attr-defined]
            assert keeping.upload_offset(digest, "alice") == 90
            assert keeping.upload_offset(digest, "bob") == 0
            with keeping.begin_upload(digest, 100, "bob") as taking:
                assert taking.offset == 0  # type: ignore[attr-defined]

        play(scenario)


class TestMessages:
    @given(st.binary(max_size=200))
    def test_what_is_no_message_is_refused(self, frame: bytes) -> None:
        try:
            message = decode(frame)
        except Unreadable:
            return
        assert decode(encode(message)) == message

    def test_a_hostile_peer_costs_only_its_stream(self, play: Play) -> None:
        async def scenario(stage: Stage) -> None:
            digest = await stage.bring(os.urandom(1000))
            worker, peer = await stage.worker("one")
            owner = stage.transfer_owner(peer, 1)
            openings: list[list[BlobMessage]] = [
                [Put(digest, -5, 1)],
                [Put(digest, 1 << 62, 1)],
                [Put("blake3:../../etc/passwd", 5, 1)],
                [Get("x")],
                [Kept()],
                [Get(digest, 1), Piece(-7, 1 << 62), Piece(1 << 62, 5)],
                [Get(digest, 1), Get(digest, 1)],
            ]
            for messages in openings:
                channel = await worker.channels.open(owner.scheduler)
                for message in messages:
                    channel.write(message)
                with contextlib.suppress(TransferInterrupted):
                    while True:
                        await channel.read_all(1)
            await worker.fetch(digest, owner)
            assert digest in worker.store

        play(scenario)
