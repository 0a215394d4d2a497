"""The in-memory swarm in virtual time: its faults, and that a seed replays them."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

import pytest

from mycel.core.identifiers import PeerId
from mycel.swarm.interface import DialFailure, Liveness
from mycel.testing.swarm.memory_swarm import Faults, MemoryNetwork, MemorySwarm

from .swarm_world import BEATING, PROTOCOLS, Recorder

ONE, OTHER = PeerId("one"), PeerId("other")
LIVENESS = Liveness(heartbeat_seconds=2.0, silence_seconds=7.0, repeat_seconds=5.0)


class VirtualClock:
    """A heap of callbacks; time jumps from one to the next."""

    def __init__(self) -> None:
        self._now = 0.0
        self._count = 0
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._waiting, (max(when, self._now), self._count, callback))

    def run_until(self, end: float) -> None:
        while self._waiting and self._waiting[0][0] <= end:
            self._now, _, callback = heapq.heappop(self._waiting)
            callback()
        self._now = end


class Stage:
    """Two connected nodes with one stream, in virtual time."""

    def __init__(self, faults: Faults | None = None, seed: int = 1) -> None:
        self.clock = VirtualClock()
        self.network = MemoryNetwork(self.clock, Random(seed), faults)
        self.near, self.far = Recorder(), Recorder()
        self.one = self.start(ONE, self.near)
        self.other = self.start(OTHER, self.far)
        self.one.dial(self.other.addresses[0])
        self.run(1.0)
        self.one.open_stream(OTHER, BEATING.name)
        self.run(1.0)

    def start(self, peer: PeerId, recorder: Recorder) -> MemorySwarm:
        return self.network.start(peer, recorder, PROTOCOLS, liveness=LIVENESS)

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now() + seconds)


def test_a_frozen_node_is_silent_and_hears_everything_when_it_thaws() -> None:
    stage = Stage()
    stage.network.freeze(OTHER)
    beats = len(stage.far.beats)
    stage.near.ours[0].write(b"while you slept")
    stage.run(13.5)
    assert len(stage.near.silences) == 2
    assert stage.near.silences[1] - stage.near.silences[0] == pytest.approx(5.0)
    assert len(stage.far.beats) == beats
    assert not stage.far.received
    assert not stage.far.silences
    stage.network.thaw(OTHER)
    stage.run(0.0)
    assert stage.far.received == [b"while you slept"]
    assert stage.far.arrivals == [stage.clock.now()]
    assert not stage.far.silences, "what had come was read before the timers"
    stage.run(3.0)
    assert stage.near.beats[-1][1] > stage.clock.now() - 2.1


def test_dials_to_the_frozen_are_silent_and_to_the_dead_refused() -> None:
    stage = Stage()
    address = stage.other.addresses[0]
    stage.network.break_connection(ONE, OTHER)
    stage.run(0.0)
    stage.network.freeze(OTHER)
    stage.one.dial(address)
    stage.run(4.9)
    assert not stage.near.dial_failures
    stage.run(0.2)
    stage.network.kill(OTHER)
    stage.one.dial(address)
    stage.run(0.0)
    kinds = [failure for _, failure, _ in stage.near.dial_failures]
    assert kinds == [DialFailure.SILENT, DialFailure.REFUSED]
    again = Recorder()
    stage.start(OTHER, again)
    stage.one.dial(address)
    stage.run(0.0)
    assert stage.near.dialled[-1] == (address, OTHER)
    assert ONE in again.peers


def test_a_partition_holds_everything_until_it_heals() -> None:
    stage = Stage()
    stage.network.partition(ONE, OTHER)
    stage.near.ours[0].write(b"held")
    stage.one.open_stream(OTHER, BEATING.name)
    stage.run(8.0)
    assert stage.near.silences
    assert stage.far.silences
    assert not stage.far.received
    assert stage.near.stream_failures
    stage.network.heal(ONE, OTHER)
    stage.run(0.0)
    assert stage.far.received == [b"held"]
    assert not stage.near.causes


def test_a_killed_node_hears_nothing_and_its_peer_loses_a_suffix() -> None:
    kept = set()
    for seed in range(30):
        stage = Stage(Faults(delay_seconds_min=0.01, delay_seconds_max=0.01), seed)
        frames = [bytes([number]) for number in range(5)]
        for frame in frames:
            stage.near.ours[0].write(frame)
        events = len(stage.near.events)
        stage.network.kill(ONE)
        stage.run(30.0)
        assert len(stage.near.events) == events
        assert stage.far.received == frames[: len(stage.far.received)]
        assert stage.far.causes == ["the connection was lost"]
        kept.add(len(stage.far.received))
    assert len(kept) > 3, "the suffix varies"


def test_an_expelled_node_is_not_admitted() -> None:
    stage = Stage()
    stage.network.expel(OTHER)
    stage.run(1.0)
    assert stage.near.causes == stage.far.causes == ["the peer's token has expired"]
    stage.one.dial(stage.other.addresses[0])
    stage.run(1.0)
    assert stage.near.dial_failures[0][1] is DialFailure.NOT_ADMITTED
    assert stage.far.refusals


def test_a_stalled_connection_moves_on() -> None:
    stage = Stage()
    stage.network.stall(ONE, OTHER)
    for _ in range(20):
        stage.near.ours[0].write(bytes(20_000))
    assert stage.near.ours[0].full
    stage.run(9.0)
    assert stage.near.silences
    writables = [stage.near.writables]
    stage.network.resume(ONE, OTHER)
    stage.run(0.0)
    writables.append(stage.near.writables)
    assert writables == [0, 1]
    assert len(stage.far.received) == 20


def test_gossip_is_lost_and_repeated() -> None:
    stage = Stage(Faults(gossip_loss=0.3, gossip_repeat=0.3))
    stage.one.subscribe("t")
    stage.other.subscribe("t")
    for number in range(100):
        stage.one.publish("t", bytes([number]))
    stage.run(1.0)
    got = [data for _, _, data in stage.far.messages]
    assert 40 < len(set(got)) < 95
    assert len(got) > len(set(got))


FAULTY = Faults(
    delay_seconds_min=0.001,
    delay_seconds_max=0.2,
    break_per_frame=0.02,
    break_per_second=0.02,
    stall_per_second=0.05,
    stall_seconds_max=10.0,
)


def storm(seed: int) -> tuple[Recorder, Recorder]:
    """A long talk over a bad network; each reconnects when it has to."""
    stage = Stage(FAULTY, seed)
    rest = Random(seed)
    for number in range(400):
        for recorder, swarm, peer in (
            (stage.near, stage.one, OTHER),
            (stage.far, stage.other, ONE),
        ):
            ended = [stream for stream, _ in recorder.ends]
            live = [stream for stream in recorder.streams if stream not in ended]
            if peer not in recorder.peers:
                swarm.dial(stage.network.address_of(peer))
            elif not live:
                swarm.open_stream(peer, BEATING.name)
            elif rest.random() < 0.1:
                live[-1].close()
            else:
                live[-1].write(number.to_bytes(4, "big"))
        stage.run(rest.random())
    return stage.near, stage.far


@pytest.mark.parametrize("seed", range(8))
def test_the_promises_hold_in_a_storm(seed: int) -> None:
    near, far = storm(seed)
    for recorder in (near, far):
        assert len(recorder.ends) > 10
        assert len(recorder.causes) > 2
        story = [name for name, _ in recorder.events]
        assert story.count("connected") - story.count("disconnected") in (0, 1)


def test_a_seed_replays_everything() -> None:
    first, again = storm(3), storm(3)
    for one, other in zip(first, again, strict=True):
        assert [name for name, _ in one.events] == [name for name, _ in other.events]
        assert one.received == other.received
        assert one.arrivals == other.arrivals
