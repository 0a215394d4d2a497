"""Revocations reach every node, over both swarms."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from mycel._native import sign_revocation
from mycel.core.identifiers import PeerId
from mycel.membership import revocations
from mycel.membership.revocations import Revoking
from mycel.swarm.interface import Admission, Stream, StreamProtocol, Swarm

from .swarm_world import PROTOCOLS, SWARM, Libp2pWorld, MemoryWorld, Recorder, until

WITH_REVOCATIONS = (
    *PROTOCOLS,
    StreamProtocol(
        name=revocations.PROTOCOL, max_frame_bytes=revocations.FRAME_BYTES_MAX, heartbeats=False
    ),
)


class Node(Recorder):
    def __init__(self, keep_at: Path | None = None) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.later_seconds = 0.0
        self.revoking = Revoking(
            SWARM, lambda event, **_: self.notes.append(event), keep_at=keep_at, unix=self._unix
        )

    def _unix(self) -> float:
        return time.time() + self.later_seconds

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        super().connected(peer, admission, address, relayed)
        self.revoking.connected(peer, admission)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        super().stream_opened(stream, ours)
        self.revoking.stream_opened(stream, ours)

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        super().frames(stream, frames, arrived_at)
        self.revoking.frames(stream, frames)

    def gossip(self, topic: str, source: PeerId, data: bytes) -> None:
        self.revoking.gossip(source, data)


@pytest.fixture(params=["libp2p", "memory"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[Libp2pWorld | MemoryWorld]:
    made = Libp2pWorld() if request.param == "libp2p" else MemoryWorld()
    yield made
    await made.close()


def record(world: Libp2pWorld | MemoryWorld, number: int) -> bytes:
    one = number.to_bytes(32, "big")
    if isinstance(world, MemoryWorld):
        return one
    return sign_revocation(world.owner_secret, SWARM, one, None)


async def start(world: Libp2pWorld | MemoryWorld, node: Node) -> Swarm:
    swarm = await world.start(node, WITH_REVOCATIONS)
    node.revoking.start(swarm)
    return swarm


async def meet(one: Swarm, other: Swarm, node: Node) -> None:
    one.dial(other.addresses[0])
    await until(lambda: other.peer in node.peers, "connection")


async def test_news_spread_by_gossip(world: Libp2pWorld | MemoryWorld) -> None:
    one, other = Node(), Node()
    near, far = await start(world, one), await start(world, other)
    await meet(near, far, one)
    await until(lambda: far.peer in one.peers and near.peer in other.peers, "both")
    number = 0

    def told() -> bool:
        # A mesh forms after the connection; what was said before it nobody heard.
        nonlocal number
        number += 1
        one.revoking.spread([record(world, number)])
        return bool(other.revoking.revoked)

    await until(told, "gossip")


async def test_who_knows_less_is_told_when_they_meet(
    world: Libp2pWorld | MemoryWorld, tmp_path: Path
) -> None:
    one, other = Node(), Node(keep_at=tmp_path / "revocations")
    near, far = await start(world, one), await start(world, other)
    one.revoking.take([record(world, number) for number in range(1000)], "test")
    await meet(near, far, one)
    await until(lambda: other.revoking.revoked == one.revoking.revoked, "the whole set")
    assert len(other.revoking.revoked) == 1000
    # It is kept: the next start knows it before anybody says so.
    again = Node(keep_at=tmp_path / "revocations")
    await start(world, again)
    assert again.revoking.revoked == one.revoking.revoked


async def test_who_is_revoked_is_cut_off(world: Libp2pWorld | MemoryWorld) -> None:
    one, other = Node(), Node()
    near, far = await start(world, one), await start(world, other)
    if isinstance(world, MemoryWorld):
        world.swarms[1].rights = type(world.swarms[1].rights)(revocation_ids=(b"7" * 32,))
    await meet(near, far, one)
    [revoked, *_] = one.admissions[far.peer].rights.revocation_ids
    made = (
        revoked
        if isinstance(world, MemoryWorld)
        else sign_revocation(world.owner_secret, SWARM, revoked, None)
    )
    assert one.revoking.take([made], "test") == 1
    await until(lambda: far.peer not in one.peers, "the cut")
    assert one.causes == ["the peer's token was revoked"]
    far.dial(near.addresses[0])
    await until(lambda: bool(other.dial_failures), "the refusal")
    assert "revoked" in other.dial_failures[0][2]


async def test_what_the_owner_did_not_sign_is_no_news() -> None:
    world = Libp2pWorld()
    try:
        node = Node()
        await start(world, node)
        stranger = Libp2pWorld()
        forged = [record(stranger, 1), b"", b"x" * 104, record(world, 2)[:-1]]
        assert node.revoking.take(forged, "test") == 0
        node.revoking.gossip(PeerId("somebody"), b"\xc1 not msgpack")
        assert node.notes == ["malformed_revocations"]
        assert not node.revoking.revoked
    finally:
        await world.close()


async def test_whoever_forges_many_is_not_listened_to_for_a_while() -> None:
    """To see that one is forged takes its time, and gossip brings them to every node."""
    world = Libp2pWorld()
    try:
        node = Node()
        swarm = await start(world, node)
        looked_at: list[bytes] = []
        revoke = swarm.revoke

        def counted(records: list[bytes]) -> list[bytes]:
            looked_at.extend(records)
            return revoke(records)

        vars(swarm)["revoke"] = counted
        signature = record(Libp2pWorld(), 0)[32:]

        def forge(source: PeerId) -> None:
            for number in range(10):
                first = number * revocations.RECORDS_PER_FRAME
                ids = range(first, first + revocations.RECORDS_PER_FRAME)
                forged = [one.to_bytes(32, "big") + signature for one in ids]
                node.revoking.gossip(source, msgspec.msgpack.encode(forged))

        forge(PeerId("forger"))
        most = revocations.USELESS_MAX + revocations.RECORDS_PER_FRAME
        assert revocations.USELESS_MAX <= len(looked_at) <= most
        assert node.notes == ["revocations_ignored"]
        for source, number in ((PeerId("another"), 1), (PeerId("forger"), 2)):
            news = msgspec.msgpack.encode([record(world, number)])
            node.revoking.gossip(source, news)
        assert node.revoking.revoked == {(1).to_bytes(32, "big")}
        node.later_seconds = revocations.USELESS_SECONDS
        node.revoking.gossip(PeerId("forger"), news)
        assert len(node.revoking.revoked) == 2
    finally:
        await world.close()


async def test_what_is_known_costs_nothing_and_offends_nobody() -> None:
    world = Libp2pWorld()
    try:
        node = Node()
        swarm = await start(world, node)
        known = [record(world, number) for number in range(100)]
        assert node.revoking.take(known, "test") == 100
        vars(swarm)["revoke"] = None  # it must not be asked
        for _ in range(revocations.USELESS_MAX):
            node.revoking.gossip(PeerId("honest"), msgspec.msgpack.encode(known))
        assert node.notes == ["revoked"]
    finally:
        await world.close()


async def test_what_has_ended_is_not_told_any_more() -> None:
    world = Libp2pWorld()
    try:
        one, other = Node(), Node()
        near, far = await start(world, one), await start(world, other)
        ends = int(time.time()) + 3600
        ending = sign_revocation(world.owner_secret, SWARM, b"e" * 32, ends)
        one.revoking.take([ending, record(world, 1)], "test")
        one.later_seconds = 3600 + revocations.ENDED_SECONDS
        await meet(near, far, one)
        await until(lambda: bool(other.revoking.revoked), "what is left")
        assert other.revoking.revoked == {(1).to_bytes(32, "big")}
    finally:
        await world.close()
