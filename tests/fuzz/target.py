"""The node that is attacked, in a process of its own: the product's swarm, protocols, codecs
and gateway, and a count of everything that gets through to them.

Calls come as JSON lines; see `mycel.bench.swarm.child_calls`.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec
import uvloop

from mycel.bench.process_memory import pss_mb
from mycel.bench.swarm.child_calls import answer_calls
from mycel.blobs import blob_messages as blob_messages
from mycel.core.identifiers import PeerId
from mycel.membership.protocols import PROTOCOLS, SIGNAL_PROTOCOL
from mycel.roles.gateway.gateway_node import GatewayNode
from mycel.runtime.clock import LoopClock
from mycel.swarm import message_codec
from mycel.swarm.interface import WORK_PROTOCOL, Stream
from mycel.swarm.libp2p import Libp2pSettings, Libp2pSwarm

from .credentials import SWARM_NAME

TOPIC: Final = f"mycel/{SWARM_NAME}/fuzz"
READERS: Final[dict[str, Callable[[bytes], object]]] = {
    WORK_PROTOCOL: message_codec.decode_work,
    SIGNAL_PROTOCOL: message_codec.decode_signal,
    blob_messages.BLOB_PROTOCOL: blob_messages.decode,
}
"""Of streams that no gateway serves. What can be read is sent back."""


class Target(GatewayNode):
    """Does what a gateway does; what is for other roles it only reads."""

    def __init__(self) -> None:
        clock = LoopClock(asyncio.get_running_loop())
        super().__init__(clock, Random(1), SWARM_NAME, self._noted)
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.heard: list[str] = []

    def _noted(self, event: str, **_fields: Any) -> None:
        self.counts[f"note:{event}"] += 1

    async def serve(self, secret: str, owner_public: str, token: str, listen: str) -> str:
        asyncio.get_running_loop().set_exception_handler(self._fault)
        self.swarm = await Libp2pSwarm.start(
            secret=bytes.fromhex(secret),
            owner_public=bytes.fromhex(owner_public),
            token=bytes.fromhex(token),
            swarm_name=SWARM_NAME,
            listener=self,
            protocols=PROTOCOLS,
            listen_addresses=[listen],
            settings=Libp2pSettings.for_gateway(),
        )
        self.start(self.swarm)
        self.swarm.subscribe(TOPIC)
        return self.swarm.addresses[0]

    def _fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that nobody expected is what a fuzzer looks for."""
        self.faults.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def report(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "faults": self.faults[:10],
            "heard": self.heard,
            "figures": msgspec.to_builtins(self.swarm.figures()),
            "pss_mb": pss_mb(os.getpid()),
        }

    # What the swarm tells

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        self.counts[f"frames:{stream.protocol}"] += len(frames)
        read = READERS.get(stream.protocol)
        if read is None:
            super().frames(stream, frames, arrived_at)
            return
        for frame in frames:
            try:
                read(frame)
            except (message_codec.MalformedFrame, blob_messages.Unreadable):
                stream.close()
                return
            self.counts[f"taken:{stream.protocol}"] += 1
            stream.write(frame)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        self.counts[f"opened:{stream.protocol}"] += 1
        if stream.protocol not in READERS:
            super().stream_opened(stream, ours)

    def stream_closed(self, stream: Stream, error: str) -> None:
        self.counts[f"closed:{stream.protocol}:{error}"] += 1
        if stream.protocol not in READERS:
            super().stream_closed(stream, error)

    def gossip(self, topic: str, source: PeerId, data: bytes) -> None:
        if topic == TOPIC:
            self.heard.append(data.decode("latin-1"))

    def refused(self, address: str, error: str) -> None:
        self.counts["refused"] += 1
        self.counts[f"refused:{error.rpartition(': ')[2][:80]}"] += 1

    def cut_off(self, peer: PeerId, reason: str) -> None:
        self.counts[f"cut_off:{reason[:80]}"] += 1


async def _main() -> None:
    target = Target()
    await answer_calls({"serve": target.serve, "report": target.report})
    os._exit(0)


if __name__ == "__main__":
    uvloop.run(_main())
