"""What the swarm's interface promises of the DHT and of peers, asked of both implementations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from mycel.core.identifiers import PeerId
from mycel.swarm.errors import FrameTooLong, InvalidAddress, InvalidSetting, NodeStopped
from mycel.swarm.interface import (
    KEY_BYTES_MAX,
    PROVIDED_KEYS_MAX,
    RECORD_BYTES_MAX,
    DialFailure,
    SignedRecord,
    Swarm,
)

from .swarm_world import DEADLINE_SECONDS, ROLES, Recorder, Story, World, pair, until

Play = Callable[[Story], None]


async def three(world: World) -> tuple[list[Recorder], list[Swarm]]:
    """A hub, and two who know only the hub."""
    recorders = [Recorder() for _ in range(3)]
    hub, one, other = swarms = [await world.start(recorder) for recorder in recorders]
    one.dial(hub.addresses[0])
    other.dial(hub.addresses[0])
    await until(lambda: len(recorders[0].peers) == 2, "the hub's two peers")
    return recorders, swarms


async def found(recorder: Recorder, swarm: Swarm, key: bytes, wanted: set[PeerId]) -> None:
    """Searches until it has found them: what is published takes its time to arrive."""
    for _ in range(1000):
        query = len(recorder.finished)
        swarm.find_providers(query, key)
        await until(partial(recorder.finished.__contains__, query), "the search's end")
        if set(recorder.providers[query]) == wanted:
            return
        await asyncio.sleep(DEADLINE_SECONDS / 1000)
    raise AssertionError("the providers were not found")


async def record_is(
    recorder: Recorder, swarm: Swarm, peer: PeerId, payload: bytes | None
) -> SignedRecord | None:
    for _ in range(1000):
        query = len(recorder.records)
        swarm.get_record(query, peer)
        await until(partial(recorder.records.__contains__, query), "an answer")
        record = recorder.records[query]
        if payload == (None if record is None else record.payload):
            return record
        await asyncio.sleep(DEADLINE_SECONDS / 1000)
    raise AssertionError("the record was not found")


def test_a_provider_is_found_by_those_who_do_not_know_it(play: Play) -> None:
    async def story(world: World) -> None:
        (_, near, far), (_, one, other) = await three(world)
        one.provide(b"gpu")
        one.provide(b"gpu")
        await found(far, other, b"gpu", {one.peer})
        other.provide(b"gpu")
        await found(near, one, b"gpu", {one.peer, other.peer})
        await found(near, one, b"something else", set())

    play(story)


def test_a_found_provider_can_be_dialled(play: Play) -> None:
    async def story(world: World) -> None:
        (_, _, far), (_, one, other) = await three(world)
        one.provide(b"gpu")
        await found(far, other, b"gpu", {one.peer})
        other.dial_peer(one.peer)
        await until(lambda: far.dialled[1:])
        assert far.dialled[1] == (f"/p2p/{one.peer}", one.peer)
        other.dial_peer(one.peer)
        await until(lambda: far.dialled[2:])
        assert far.dialled[2] == far.dialled[1]

    play(story)


def test_a_peer_that_nobody_knows_cannot_be_dialled(play: Play) -> None:
    async def story(world: World) -> None:
        (_, near, _), (_, one, _) = await three(world)
        stranger = await world.start(Recorder())
        await world.stop(stranger)
        one.dial_peer(stranger.peer)
        await until(lambda: near.dial_failures)
        [(address, failure, _)] = near.dial_failures
        assert address == f"/p2p/{stranger.peer}"
        assert failure in (DialFailure.REFUSED, DialFailure.OTHER)

    play(story)


def test_the_newest_record_of_a_peer_is_found(play: Play) -> None:
    async def story(world: World) -> None:
        (_, _, far), (_, one, other) = await three(world)
        await record_is(far, other, one.peer, None)
        expires_at = world.wall() + 300
        one.put_record(b"first", 1, expires_at)
        record = await record_is(far, other, one.peer, b"first")
        assert record is not None
        assert (record.peer, record.sequence) == (one.peer, 1)
        assert record.expires_at == pytest.approx(expires_at, abs=0.01)
        one.put_record(b"second", 2, expires_at)
        await record_is(far, other, one.peer, b"second")
        one.withdraw_record()
        withdrawn = await record_is(far, other, one.peer, b"")
        assert withdrawn is not None
        assert withdrawn.sequence > 2

    play(story)


def test_a_record_ends(play: Play) -> None:
    async def story(world: World) -> None:
        (_, near, far), (_, one, other) = await three(world)
        one.put_record(b"short", 1, world.wall() + 0.2)
        await record_is(near, one, one.peer, None)
        await record_is(far, other, one.peer, None)

    play(story)


def test_what_the_dht_cannot_carry_is_not_taken(play: Play) -> None:
    async def story(world: World) -> None:
        swarm = await world.start(Recorder())
        for key in (b"", bytes(KEY_BYTES_MAX + 1)):
            with pytest.raises(InvalidSetting):
                swarm.provide(key)
            with pytest.raises(InvalidSetting):
                swarm.find_providers(1, key)
        for number in range(PROVIDED_KEYS_MAX):
            swarm.provide(b"key %d" % number)
        with pytest.raises(InvalidSetting):
            swarm.provide(b"one more")
        swarm.stop_providing(b"key 0")
        swarm.provide(b"one more")
        with pytest.raises(FrameTooLong):
            swarm.put_record(bytes(RECORD_BYTES_MAX + 1), 1, world.wall() + 60)
        with pytest.raises(InvalidSetting):
            swarm.put_record(b"", -1, world.wall() + 60)
        await world.stop(swarm)
        asks: list[Callable[[], None]] = [
            lambda: swarm.provide(b"one more"),
            lambda: swarm.find_providers(1, b"x"),
            lambda: swarm.put_record(b"x", 1, 1.0),
            lambda: swarm.get_record(1, swarm.peer),
            lambda: swarm.dial_peer(swarm.peer),
            lambda: swarm.keep(swarm.peer, True),
        ]
        for ask in asks:
            with pytest.raises(NodeStopped):
                ask()

    play(story)


def test_a_lonely_node_gets_its_answers(play: Play) -> None:
    async def story(world: World) -> None:
        recorder = Recorder()
        swarm = await world.start(recorder)
        stranger = await world.start(Recorder())
        swarm.find_providers(1, b"gpu")
        swarm.get_record(1, stranger.peer)
        await until(lambda: recorder.finished and recorder.records)
        assert recorder.providers == {1: []}
        assert recorder.records == {1: None}

    play(story)


def test_connected_peers_are_listed(play: Play) -> None:
    async def story(world: World) -> None:
        before = world.now()
        near, _, one, other = await pair(world)
        await until(lambda: one.peers()[0].software and near.beats, "what the peer is")
        [facts] = one.peers()
        assert (facts.peer, facts.roles, facts.relayed) == (other.peer, ROLES, False)
        assert facts.addresses
        assert before <= facts.connected_at <= facts.last_heard_at <= world.now()
        await until(lambda: one.peers()[0].rtt_seconds is not None)
        heard_at = facts.last_heard_at
        await until(lambda: one.peers()[0].last_heard_at > heard_at, "more from the peer")
        one.disconnect(other.peer)
        await until(lambda: near.causes)
        assert not one.peers()

    play(story)


def test_what_happens_is_counted(play: Play) -> None:
    async def story(world: World) -> None:
        near, far, one, other = await pair(world)
        one.dial(world.nobody())
        await until(lambda: near.dial_failures)
        one.subscribe("news")
        other.subscribe("news")
        while not far.messages:
            one.publish("news", b"x")
            await asyncio.sleep(0.02)
        figures = one.figures()
        assert figures.dials == {"succeeded": 1, "refused": 1}
        assert figures.connections["direct"] == 1
        assert figures.streams == 1
        assert figures.gossip_published >= 1
        assert other.figures().gossip_received >= 1

    play(story)


def test_a_reservation_is_held_while_the_gateway_lives(play: Play) -> None:
    async def story(world: World) -> None:
        near = Recorder()
        gateway, swarm = await world.start_gateway(Recorder()), await world.start(near)
        with pytest.raises(InvalidAddress):
            swarm.reserve("nowhere")
        swarm.dial(gateway.addresses[0])
        await until(lambda: near.dialled)
        swarm.reserve(gateway.addresses[0])
        await until(lambda: near.reservations, "the reservation")
        assert near.reservations == [(gateway.peer, True, "")]
        await world.stop(gateway)
        await until(lambda: near.reservations[1:], "its end")
        assert near.reservations[1][:2] == (gateway.peer, False)

    play(story)


def test_who_is_no_gateway_holds_nothing(play: Play) -> None:
    async def story(world: World) -> None:
        near, _, swarm, other = await pair(world)
        swarm.reserve(other.addresses[0])
        await until(lambda: near.reservations, "the refusal")
        assert near.reservations[0][:2] == (other.peer, False)

    play(story)
