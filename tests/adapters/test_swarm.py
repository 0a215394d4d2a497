"""What `mycel.swarm.interface` promises, asked of both implementations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mycel.core.identifiers import PeerId
from mycel.swarm.errors import FrameTooLong, InvalidAddress, InvalidSetting, NodeStopped
from mycel.swarm.interface import GOSSIP_BYTES_MAX, DialFailure

from .swarm_world import (
    BEATING,
    LIVENESS,
    QUIET,
    ROLES,
    Recorder,
    Story,
    World,
    pair,
    until,
)


def test_a_dial_connects_both_and_is_answered_once(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far = Recorder(), Recorder()
        dialer, acceptor = await world.start(near), await world.start(far)
        [address] = acceptor.addresses
        assert address.endswith(f"/p2p/{acceptor.peer}")
        dialer.dial(address)
        await until(lambda: near.dialled and far.peers)
        assert near.dialled == [(address, acceptor.peer)]
        assert near.peers == {acceptor.peer: ROLES}
        assert far.peers == {dialer.peer: ROLES}
        await until(lambda: near.round_trips and far.round_trips)
        dialer.dial(address)
        await until(lambda: len(near.dialled) == 2)
        assert not near.dial_failures

    play(story)


def test_an_address_without_a_peer_id_can_be_dialled(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far = Recorder(), Recorder()
        dialer, acceptor = await world.start(near), await world.start(far)
        dialer.dial(acceptor.addresses[0].partition("/p2p/")[0])
        await until(lambda: near.dialled)
        assert near.dialled[0][1] == acceptor.peer

    play(story)


def test_two_who_dial_each_other_meet_once(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far = Recorder(), Recorder()
        one, other = await world.start(near), await world.start(far)
        one.dial(other.addresses[0])
        other.dial(one.addresses[0])
        await until(lambda: near.dialled and far.dialled)
        one.open_stream(other.peer, BEATING.name)
        await until(lambda: near.streams and far.streams)

    play(story)


def test_nobody_there_is_refused(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near = Recorder()
        dialer = await world.start(near)
        dialer.dial(world.nobody())
        await until(lambda: near.dial_failures)
        [(address, failure, _)] = near.dial_failures
        assert (address, failure) == (world.nobody(), DialFailure.REFUSED)

    play(story)


def test_a_stopped_node_is_refused(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, _, dialer, acceptor = await pair(world)
        [address] = acceptor.addresses
        await world.stop(acceptor)
        await until(lambda: near.causes)
        dialer.dial(address)
        await until(lambda: near.dial_failures)
        assert near.dial_failures[0][1] is DialFailure.REFUSED

    play(story)


def test_another_peer_at_the_address_is_no_success(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near = Recorder()
        dialer, acceptor = await world.start(near), await world.start(Recorder())
        elsewhere = await world.start(Recorder())
        address = acceptor.addresses[0].partition("/p2p/")[0]
        dialer.dial(f"{address}/p2p/{elsewhere.peer}")
        await until(lambda: near.dial_failures)
        assert near.dial_failures[0][1] is DialFailure.OTHER

    play(story)


def test_what_cannot_be_asked_raises(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        swarm = await world.start(Recorder())
        with pytest.raises(InvalidAddress):
            swarm.dial("nowhere")
        with pytest.raises(InvalidSetting):
            swarm.open_stream(swarm.peer, "/test/unknown/1")
        await world.stop(swarm)
        await world.stop(swarm)
        with pytest.raises(NodeStopped):
            swarm.dial(world.nobody())

    play(story)


def test_frames_come_back_in_order_and_once(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far, _, _ = await pair(world)
        far.echo = True
        frames = [number.to_bytes(4, "big") * (number % 50) for number in range(2000)]
        before = world.now()
        for frame in frames:
            near.ours[0].write(frame)
        await until(lambda: len(near.received) == len(frames))
        assert far.received == frames
        assert near.received == frames
        assert before <= min(near.arrivals)
        assert max(near.arrivals) <= world.now()

    play(story)


def test_both_ends_write_on_several_streams(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far, one, other = await pair(world)
        one.open_stream(other.peer, QUIET.name)
        other.open_stream(one.peer, QUIET.name)
        await until(lambda: len(near.streams) == 3 and len(far.streams) == 3)
        assert sorted(stream.protocol for stream in near.streams) == [
            BEATING.name,
            QUIET.name,
            QUIET.name,
        ]
        assert [len(near.ours), len(far.ours)] == [2, 1]
        for recorder in (near, far):
            for number, stream in enumerate(recorder.streams):
                stream.write(bytes([number]))
        await until(lambda: len(near.received) == 3 and len(far.received) == 3)

    play(story)


def test_a_closed_stream_delivers_what_was_written(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far, _, _ = await pair(world)
        [stream] = near.ours
        for number in range(100):
            stream.write(bytes([number]) * 1000)
        stream.close()
        stream.close()
        stream.write(b"too late")
        await until(lambda: near.ends and far.ends)
        assert len(far.received) == 100
        assert near.ends == [(stream, "")]
        assert [error for _, error in far.ends] == [""]
        assert near.peers
        assert far.peers

    play(story)


def test_a_frame_over_the_limit_is_not_taken(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far, _, _ = await pair(world)
        [stream] = near.ours
        with pytest.raises(FrameTooLong):
            stream.write(bytes(BEATING.max_frame_bytes + 1))
        longest = bytes(BEATING.max_frame_bytes)
        stream.write(longest)
        stream.write(b"")
        await until(lambda: len(far.received) == 2)
        assert far.received == [longest, b""]

    play(story)


def test_a_full_stream_tells_when_it_is_writable(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far, _, _ = await pair(world)
        [stream] = near.ours
        assert not stream.full
        frame = bytes(60_000)
        written = 0
        while not stream.full:
            stream.write(frame)
            written += 1
            assert written < 1000
        assert written * len(frame) >= BEATING.write_high_bytes - len(frame)
        await until(lambda: near.writables)
        assert not stream.full
        await until(lambda: len(far.received) == written)
        assert near.writables == 1

    play(story)


def test_a_stream_needs_a_connection(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near = Recorder()
        swarm, stranger = await world.start(near), await world.start(Recorder())
        swarm.open_stream(stranger.peer, BEATING.name)
        await until(lambda: near.stream_failures)
        [(peer, protocol, _)] = near.stream_failures
        assert (peer, protocol) == (stranger.peer, BEATING.name)

    play(story)


def test_a_stream_needs_a_protocol_that_both_speak(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near = Recorder()
        swarm = await world.start(near)
        other = await world.start(Recorder(), [BEATING])
        swarm.dial(other.addresses[0])
        await until(lambda: near.dialled)
        swarm.open_stream(other.peer, QUIET.name)
        await until(lambda: near.stream_failures)
        assert not near.streams
        swarm.open_stream(other.peer, BEATING.name)
        await until(lambda: near.streams)

    play(story)


def test_both_ends_send_heartbeats(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far, _, _ = await pair(world)
        await until(lambda: len(near.beats) >= 4 and len(far.beats) >= 4)
        for recorder in (near, far):
            clocks = [peer_clock for peer_clock, _ in recorder.beats]
            assert clocks == sorted(clocks)
            # Both nodes share this machine's clock, so that the two can be compared.
            assert all(sent <= arrived for sent, arrived in recorder.beats)
            assert not recorder.received
            assert not recorder.silences

    play(story)


def test_a_protocol_without_heartbeats_may_be_silent(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far, dialer, acceptor = await pair(world, QUIET)
        dialer.open_stream(acceptor.peer, BEATING.name)
        enough = 2 * LIVENESS.silence_seconds / LIVENESS.heartbeat_seconds
        await until(lambda: len(near.beats) > enough)
        for recorder in (near, far):
            quiet = [stream for stream in recorder.streams if stream.protocol == QUIET.name]
            assert all(about not in quiet for name, about in recorder.events if name == "silent")

    play(story)


def test_gossip_reaches_subscribers(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far, one, other = await pair(world)
        one.subscribe("news")
        other.subscribe("news")
        sent = 0
        while not far.messages:  # a mesh takes its time to form, and gossip may be lost
            sent += 1
            one.publish("news", b"message %d" % sent)
            await asyncio.sleep(0.02)
            assert sent < 500
        topic, source, data = far.messages[0]
        assert (topic, source) == ("news", one.peer)
        assert data.startswith(b"message")
        one.publish("other topic", b"nothing")
        assert all(topic == "news" for topic, _, _ in far.messages)
        assert not near.messages
        with pytest.raises(FrameTooLong):
            one.publish("news", bytes(GOSSIP_BYTES_MAX + 1))

    play(story)


def test_a_disconnected_peer_is_told_after_its_streams(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far, one, other = await pair(world)
        one.disconnect(other.peer)
        await until(lambda: near.causes and far.causes)
        for recorder in (near, far):
            assert [name for name, _ in recorder.events][-2:] == ["stream_closed", "disconnected"]
            assert recorder.ends[0][1], "a lost stream has a reason"
            assert recorder.causes[0]
        one.dial(other.addresses[0])
        await until(lambda: near.peers and far.peers)
        one.open_stream(other.peer, BEATING.name)
        await until(lambda: len(near.streams) == 2 and len(far.streams) == 2)

    play(story)


def test_a_stop_sends_what_is_queued(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far, dialer, _ = await pair(world)
        for number in range(200):
            near.ours[0].write(bytes([number]) * 1000)
        await world.stop(dialer)
        assert near.ends == [(near.ours[0], "")]
        assert not near.peers
        await until(lambda: far.causes)
        assert len(far.received) == 200
        assert [error for _, error in far.ends] == [""]

    play(story)


def test_to_leave_an_unknown_peer_is_nothing(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, _, swarm, other = await pair(world)
        stranger = await world.start(Recorder())
        swarm.disconnect(PeerId(stranger.peer))
        near.ours[0].write(b"x")
        assert other.peer in near.peers

    play(story)


def test_who_is_accused_ten_times_is_cut_off(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        near, far = Recorder(), Recorder()
        judge, accused = await world.start(near), await world.start(far)
        judge.dial(accused.addresses[0])
        await until(lambda: near.peers and far.peers)
        for _ in range(9):
            judge.accuse(accused.peer)
        await asyncio.sleep(0)
        assert not near.cuts
        judge.accuse(accused.peer)
        await until(lambda: near.cuts)
        assert near.cuts == [(accused.peer, "malformed_frame")]
        await until(lambda: not far.peers, "its connection is gone")

    play(story)
