"""Real nodes, and a member that sends frames which are no messages: ten, and it is out."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

import pytest

from mycel.core.events import Event
from mycel.core.identifiers import PeerId
from mycel.membership.links import Links
from mycel.membership.protocols import PROTOCOLS, SIGNAL_PROTOCOL
from mycel.roles.gateway.gateway_node import GatewayNode
from mycel.runtime.clock import LoopClock
from mycel.swarm.interface import CONTROL_PROTOCOL, WORK_PROTOCOL, Stream, Swarm
from mycel.swarm.null_listener import IndifferentListener

from .swarm_world import Libp2pWorld, Recorder, until

GARBAGE = b"\xc1 no message"


class Linked(IndifferentListener):
    """As much of a scheduler's or a worker's node as links take."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.swarm: Swarm | None = None
        clock = LoopClock(asyncio.get_running_loop())
        self._links = Links(clock, self.events.append, accuse=self._accuse)

    def _accuse(self, peer: PeerId, error: str) -> None:
        assert self.swarm is not None
        self.swarm.accuse(peer)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        self._links.stream_opened(stream)

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        self._links.frames(stream, frames, arrived_at)

    def stream_closed(self, stream: Stream, error: str) -> None:
        self._links.stream_closed(stream, error)


async def pelt(attacker: Swarm, heard: Recorder, victim: Swarm, protocols: list[str]) -> int:
    """One frame of garbage on each new link, until it is cut off; how many it took."""
    sent = 0
    while heard.peers and sent < 30:
        due = len(heard.ours) + len(protocols)
        for protocol in protocols:
            attacker.open_stream(victim.peer, protocol)
        await until(partial(_is_open, heard, due))
        if not heard.peers:
            break
        stream = heard.ours[-1]
        stream.write(GARBAGE)
        sent += 1
        await until(partial(_has_ended, heard, stream))
    return sent


def _is_open(heard: Recorder, due: int) -> bool:
    return len(heard.ours) == due or not heard.peers


def _has_ended(heard: Recorder, stream: Stream) -> bool:
    return any(one is stream for one, _ in heard.ends) or not heard.peers


@pytest.mark.parametrize(
    ("victim", "protocols"),
    [
        ("links", [CONTROL_PROTOCOL, WORK_PROTOCOL]),
        ("links", [WORK_PROTOCOL, CONTROL_PROTOCOL]),
        ("gateway", [CONTROL_PROTOCOL]),
        ("gateway", [SIGNAL_PROTOCOL]),
    ],
)
async def test_ten_frames_of_garbage_cut_a_peer_off(victim: str, protocols: list[str]) -> None:
    world = Libp2pWorld()
    try:
        heard = Recorder()
        attacker = await world.start(heard, PROTOCOLS)
        linked = Linked()
        clock = LoopClock(asyncio.get_running_loop())
        notes: list[str] = []
        gateway = GatewayNode(clock, Random(1), "swarm", lambda event, **_: notes.append(event))
        listener = linked if victim == "links" else gateway
        node = await world.start(listener, PROTOCOLS)  # type: ignore[arg-type]
        linked.swarm = node
        if victim == "gateway":
            gateway.start(node)
        attacker.dial(node.addresses[0])
        await until(lambda: heard.peers)
        assert await pelt(attacker, heard, node, protocols) == 10
        assert node.figures().cut_offs == {"malformed_frame": 1}
    finally:
        await world.close()
