"""Knocks, of both implementations; and what a knock is on the wire."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from mycel.core.identifiers import PeerId
from mycel.swarm.errors import NodeStopped
from mycel.swarm.quic_probe import OPEN_MAX, PACKET_BYTES, QuicProber, answered_id, places

from .swarm_world import Recorder, Story, World, until

SOMEBODY = PeerId("somebody")


def test_who_is_awake_answers_without_a_connection(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far = Recorder(), Recorder()
        one, other = await world.start(near), await world.start(far)
        address = await world.open_to_knocks(other)
        assert one.knock(other.peer, [address])
        await until(lambda: near.knocks)
        assert near.knocks == [other.peer]
        assert not near.peers
        assert not far.peers
        assert not far.refusals, "nor is it taken for an attempt to get in"

    play(story)


def test_who_has_stopped_does_not_answer(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near = Recorder()
        one, gone = await world.start(near), await world.start(Recorder())
        awake = await world.start(Recorder())
        address, control = await world.open_to_knocks(gone), await world.open_to_knocks(awake)
        await world.stop(gone)
        assert one.knock(gone.peer, [address])
        assert one.knock(awake.peer, [control])
        await until(lambda: near.knocks)
        assert near.knocks == [awake.peer]

    play(story)


def test_a_peer_without_an_address_cannot_be_knocked_at(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        swarm = await world.start(Recorder())
        assert not swarm.knock(SOMEBODY, [])
        await world.stop(swarm)
        with pytest.raises(NodeStopped):
            swarm.knock(SOMEBODY, [])

    play(story)


def test_knocks_go_to_direct_quic_addresses_alone() -> None:
    found = places(
        [
            "/ip4/10.0.0.1/tcp/4001/p2p/somebody",
            "/ip4/10.0.0.1/udp/4001/quic-v1/p2p/somebody",
            "/ip6/::1/udp/4002/quic-v1",
            "/ip4/10.0.0.1/udp/4001/quic-v1/p2p/gateway/p2p-circuit/p2p/somebody",
            "/ip4/example.org/udp/4001/quic-v1",
            "/ip4/10.0.0.1/udp/99999/quic-v1",
            "/dns4/example.org/udp/4001/quic-v1",
        ]
    )
    assert found == [
        (socket.AF_INET, "10.0.0.1", 4001),
        (socket.AF_INET6, "::1", 4002),
    ]


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\x80",
        b"\x80\0\0\0\0\x08" + b"x" * 7,
        b"\x80\0\0\0\x01\x08" + b"x" * 20,
        b"\x40\0\0\0\0\x08" + b"x" * 20,
        b"\x80\0\0\0\0\x09" + b"x" * 20,
        b"\xff" * 1500,
    ],
)
def test_what_is_no_answer_is_not_taken_for_one(packet: bytes) -> None:
    assert answered_id(packet) == b""


def test_only_an_answer_that_names_the_knock_counts() -> None:
    """Who has not seen the knock cannot answer it in the peer's name."""

    async def story() -> None:
        heard: list[PeerId] = []
        loop = asyncio.get_running_loop()
        knocker = QuicProber(loop, lambda peer, seconds: heard.append(peer))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", 0))
            peer.setblocking(False)
            address = f"/ip4/127.0.0.1/udp/{peer.getsockname()[1]}/quic-v1"
            assert knocker.knock(SOMEBODY, [address])
            packet, origin = await loop.sock_recvfrom(peer, 2000)
            assert len(packet) == PACKET_BYTES
            own = packet[15:23]
            answer = b"\x80\0\0\0\0\x08%b\x08" + packet[6:14] + b"\0\0\0\1"
            for knock_id in (b"guessing", own, own):
                peer.sendto(answer % knock_id, origin)
            await until(lambda: heard)
            assert knocker.knock(SOMEBODY, [address])
            packet, _ = await loop.sock_recvfrom(peer, 2000)
            peer.sendto(answer % packet[15:23], origin)
            await until(lambda: len(heard) >= 2)
        knocker.close()
        assert heard == [SOMEBODY] * 2, "each knock is answered once"

    asyncio.run(story())


def test_knocks_that_nobody_answers_are_forgotten_in_the_end() -> None:
    async def story() -> None:
        knocker = QuicProber(asyncio.get_running_loop(), lambda peer, seconds: None)
        nowhere = ["/ip4/127.0.0.1/udp/1/quic-v1"]
        for _ in range(OPEN_MAX + 10):
            knocker.knock(SOMEBODY, nowhere)
        assert len(knocker._open) == OPEN_MAX
        knocker.close()

    asyncio.run(story())
