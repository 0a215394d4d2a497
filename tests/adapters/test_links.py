"""Two streams are one link: up with both, gone with either."""

from __future__ import annotations

import msgspec
import pytest

from mycel.core.events import Event, HeartbeatReceived, LinkDown, LinkUp, Received, SilenceNoticed
from mycel.core.identifiers import LeaseId, PeerId, RequestId
from mycel.core.messages import Closed, Renew
from mycel.membership.links import EARLY_BATCHES_MAX, HALF_SECONDS, Links
from mycel.swarm import message_codec
from mycel.swarm.interface import CONTROL_PROTOCOL, WORK_PROTOCOL
from tests.simulation.time import ProcessClock, VirtualClock

PEER = PeerId("peer")
RENEW = Renew(1.0, LeaseId(1))
CLOSED = Closed(RequestId(1), "no", True)


class End:
    """One end of a stream, with what was written to it."""

    def __init__(self, protocol: str) -> None:
        self.peer = PEER
        self.protocol = protocol
        self.full = False
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, frame: bytes) -> None:
        self.written.append(frame)

    def close(self) -> None:
        self.is_closed = True


class Stage:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.world = VirtualClock()
        self.accused: list[PeerId] = []
        self.links = Links(
            ProcessClock(self.world, 0.0),
            self.events.append,
            accuse=lambda peer, _: self.accused.append(peer),
        )
        self.control = End(CONTROL_PROTOCOL)
        self.work = End(WORK_PROTOCOL)

    def open(self) -> None:
        self.links.stream_opened(self.control)
        self.links.stream_opened(self.work)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_link_is_up_with_its_second_stream(stage: Stage) -> None:
    stage.links.stream_opened(stage.work)
    assert stage.events == []
    stage.links.stream_opened(stage.control)
    assert stage.events == [LinkUp(PEER)]


def test_frames_before_that_wait(stage: Stage) -> None:
    stage.links.stream_opened(stage.work)
    stage.links.frames(stage.work, [message_codec.encode(RENEW)], 5.0)
    stage.links.stream_opened(stage.control)
    assert stage.events == [LinkUp(PEER), Received(PEER, RENEW, 5.0)]


def test_half_a_link_is_given_up(stage: Stage) -> None:
    stage.links.stream_opened(stage.work)
    stage.world.run_until(stage.world.now() + HALF_SECONDS + 0.1)
    assert stage.work.is_closed
    assert not stage.links.is_linked(PEER)


def test_a_whole_link_is_not(stage: Stage) -> None:
    stage.open()
    stage.world.run_until(stage.world.now() + HALF_SECONDS + 0.1)
    assert stage.links.is_up(PEER)


def test_too_many_of_them_end_it(stage: Stage) -> None:
    stage.links.stream_opened(stage.work)
    for _ in range(EARLY_BATCHES_MAX + 1):
        stage.links.frames(stage.work, [message_codec.encode(RENEW)], 5.0)
    assert stage.work.is_closed
    assert not stage.links.is_linked(PEER)


def test_each_message_has_its_stream(stage: Stage) -> None:
    stage.open()
    stage.links.send(PEER, RENEW)
    stage.links.send(PEER, CLOSED)
    assert stage.work.written == [message_codec.encode(RENEW)]
    assert stage.control.written == [message_codec.encode(CLOSED)]


def test_nothing_is_sent_on_half_a_link(stage: Stage) -> None:
    stage.links.stream_opened(stage.work)
    stage.links.send(PEER, RENEW)
    assert stage.work.written == []


@pytest.mark.parametrize("which", ["control", "work"])
def test_the_end_of_either_stream_is_the_end(stage: Stage, which: str) -> None:
    stage.open()
    stage.links.stream_closed(getattr(stage, which), "reset")
    assert stage.events[-1] == LinkDown(PEER, "reset")
    assert stage.control.is_closed
    assert stage.work.is_closed
    stage.links.stream_closed(stage.work, "again")
    assert len(stage.events) == 2, "told once"


def test_what_is_not_ours_ends_the_link(stage: Stage) -> None:
    stage.open()
    good = message_codec.encode(RENEW)
    stage.links.frames(stage.work, [good, msgspec.msgpack.encode(["nonsense"]), good], 5.0)
    assert stage.events[1] == Received(PEER, RENEW, 5.0)
    assert isinstance(stage.events[2], LinkDown)
    assert "not a work message" in stage.events[2].cause
    assert len(stage.events) == 3


def test_a_new_link_replaces_one_whose_end_nobody_noticed(stage: Stage) -> None:
    stage.open()
    stage.links.stream_opened(End(WORK_PROTOCOL))
    stage.links.stream_opened(End(CONTROL_PROTOCOL))
    kinds = [type(event) for event in stage.events]
    assert kinds == [LinkUp, LinkDown, LinkUp]
    stage.links.frames(stage.work, [message_codec.encode(RENEW)], 5.0)
    assert len(stage.events) == 3, "the old stream is not listened to"


def test_signs_of_life_are_passed_on(stage: Stage) -> None:
    stage.links.heartbeat(stage.work, 1.0, 2.0)
    assert stage.events == []
    stage.open()
    stage.links.heartbeat(stage.work, 1.0, 2.0)
    stage.links.silent(stage.work, 7.0)
    assert stage.events[1:] == [HeartbeatReceived(PEER, 1.0, 2.0), SilenceNoticed(PEER, 7.0)]


@pytest.mark.parametrize("batches", [[10], [1] * 10, [3, 7]])
def test_each_frame_that_is_no_message_counts(stage: Stage, batches: list[int]) -> None:
    stage.open()
    good = message_codec.encode(CLOSED)
    stage.links.frames(stage.control, [good], 1.0)
    for count in batches:
        stage.links.frames(stage.control, [b"\xc1garbage", good] * count, 1.0)
    assert stage.accused == [PEER] * 10
    heard = [event for event in stage.events if isinstance(event, Received)]
    assert len(heard) == 1, "nothing is heard behind garbage"
    assert isinstance(stage.events[-1], LinkDown)
    stage.links.stream_closed(stage.control, "")
    stage.links.frames(stage.control, [b"\xc1"], 1.0)
    assert len(stage.accused) == 10


def test_a_message_that_cannot_be_sent_costs_the_link_alone(stage: Stage) -> None:
    stage.open()
    stage.links.send(PEER, Closed(RequestId(1), "half \ud800 a pair", True))
    assert isinstance(stage.events[-1], LinkDown)
    assert "cannot be sent" in stage.events[-1].cause
