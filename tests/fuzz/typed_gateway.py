"""A gateway under typed messages, in a swarm in memory."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final

from mycel.blobs import blob_messages as blobs
from mycel.core import messages
from mycel.core.identifiers import PeerId
from mycel.membership.protocols import PROTOCOLS, SIGNAL_PROTOCOL
from mycel.roles.gateway.gateway_node import GatewayNode
from mycel.swarm import message_codec
from mycel.swarm.interface import CONTROL_PROTOCOL, Admission
from mycel.testing.swarm.memory_swarm import MemoryNetwork
from tests.simulation.time import ProcessClock, VirtualClock

from .typed_scheduler import HONEST, HOSTILE, Crashed
from .typed_values import Maker, structs_of

WORKER: Final = Admission(roles=frozenset({"worker"}))


class _Stream:
    """An end of a stream; what was written to it."""

    full = False

    def __init__(self, peer: PeerId, protocol: str) -> None:
        self.peer = peer
        self.protocol = protocol
        self.written: list[bytes] = []

    def write(self, frame: bytes) -> None:
        self.written.append(frame)

    def close(self) -> None:
        pass


class GatewayTarget:
    """Beside it, what no machine of ours keeps is only decoded: gossip and blob streams."""

    name = "gateway"

    def __init__(self, folder: Path, random: Random) -> None:
        self._random = random
        self._world = VirtualClock()
        clock = ProcessClock(self._world, 0.0)
        network = MemoryNetwork(self._world, Random(1))
        self._node = GatewayNode(clock, random, "swarm", lambda *_, **__: None)
        self._swarm = network.start(PeerId("gateway"), self._node, PROTOCOLS)
        self._node.start(self._swarm)
        self.maker = Maker(random, {"peer": [HOSTILE, HONEST]})
        self._control = structs_of(messages.ControlMessage)
        self._signal = structs_of(messages.SignalMessage)
        [self._gossip] = structs_of(messages.Announcement)
        self._blob = structs_of(blobs.Message)
        self.refused_entries = 0
        self._connect()

    def _connect(self) -> None:
        for peer in (HONEST, HOSTILE):
            self._node.connected(peer, WORKER, "/memory/x", False)

    def hear(self) -> bool:
        dice = self._random.random()
        if dice < 0.2:
            return self._is_read(
                message_codec.decode_announcement, self._gossip, message_codec.MalformedFrame
            )
        if dice < 0.4:
            kind = self._random.choice(self._blob)
            return self._is_read(blobs.decode, kind, blobs.Unreadable)
        kinds, decode, protocol = (
            (self._signal, message_codec.decode_signal, SIGNAL_PROTOCOL)
            if dice < 0.5
            else (self._control, message_codec.decode_control, CONTROL_PROTOCOL)
        )
        frame = self.maker.message(self._random.choice(kinds))
        stream = _Stream(HOSTILE, protocol)
        self._node.frames(stream, [frame], self._world.now())
        for answer in stream.written:
            decode(answer)
        return self._decodes(decode, frame, message_codec.MalformedFrame)

    def _is_read(self, decode: Any, kind: Any, refused: type[Exception]) -> bool:
        return self._decodes(decode, self.maker.message(kind), refused)

    def _decodes(self, decode: Any, frame: bytes, refused: type[Exception]) -> bool:
        try:
            decode(frame)
        except refused:
            return False
        return True

    def turn(self, seconds: float = 0.01) -> None:
        self._world.run_until(self._world.now() + seconds)

    def unsettle(self) -> None:
        self._node.disconnected(HOSTILE, "gone")
        self._connect()
        self.turn(10.0)

    def probe(self) -> None:
        stream = _Stream(HONEST, CONTROL_PROTOCOL)
        me = messages.PeerRecord(HONEST, ("worker",), ("/memory/honest",))
        frame = message_codec.encode(messages.Join(messages.WIRE_VERSION, me))
        self._node.frames(stream, [frame], self._world.now())
        answers = [message_codec.decode_control(one) for one in stream.written]
        if not answers or not isinstance(answers[-1], messages.Peers):
            raise Crashed(f"an honest node is answered with {answers}")

    def close(self) -> None:
        pass
