"""A process that holds some of the nodes, and does what the conductor calls for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time
from random import Random
from typing import Any, Final

import uvloop

from mycel._native import identity
from mycel.access.founder import Founder
from mycel.bench.process_memory import pss_mb
from mycel.core.identifiers import PeerId
from mycel.membership.protocols import PROTOCOLS
from mycel.roles.gateway.gateway_node import GatewayNode
from mycel.runtime.clock import LoopClock
from mycel.swarm.interface import Admission, SwarmListener
from mycel.swarm.libp2p import Libp2pSwarm

from .child_calls import answer_calls
from .measure_plan import SWARM_NAME, TOPIC
from .measured_node import BenchNode, Heard

TOKEN_SECONDS: Final = 3600
CALLS: Final = (
    *("gateway", "populate", "join", "publish", "count", "delays", "offer"),
    *("is_connected", "look_up", "usage"),
)
"""Methods of `House` that the conductor may call."""


async def start_node(
    listener: SwarmListener, owner_secret: bytes, role: str, listen: str
) -> Libp2pSwarm:
    """With a fresh identity, and a token that the owner has signed for it."""
    secret = os.urandom(32)
    _, peer = identity(secret)
    founder = Founder(owner_secret, identity(owner_secret)[0], SWARM_NAME)
    return await Libp2pSwarm.start(
        secret=secret,
        owner_public=founder.public,
        token=founder.member_token(peer, (role,)),
        swarm_name=SWARM_NAME,
        listener=listener,
        protocols=PROTOCOLS,
        listen_addresses=[listen],
    )


class House:
    def __init__(self) -> None:
        self._nodes: list[BenchNode] = []

    async def gateway(self, owner: str, listen: str) -> str:
        """The product's own gateway; it counts as one of the nodes."""
        node = Gateway()
        await self._add(node, node.listener, owner, "gateway", listen)
        return node.swarm.addresses[0]

    async def populate(self, owner: str, listen: str, count: int) -> list[PeerId]:
        for _ in range(count):
            node = BenchNode()
            await self._add(node, node, owner, "worker", listen)
        return [node.swarm.peer for node in self._nodes]

    async def _add(
        self, node: BenchNode, listener: SwarmListener, owner: str, role: str, listen: str
    ) -> None:
        node.start(await start_node(listener, bytes.fromhex(owner), role, listen))
        self._nodes.append(node)

    async def join(self, gateway: str, at_once: int, seconds_max: float) -> None:
        """Who does not make it in time goes on trying; gossip tells who has joined."""
        places = asyncio.Semaphore(at_once)

        async def one(node: BenchNode) -> None:
            async with places:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(node.join(gateway), seconds_max)

        await asyncio.gather(*(one(node) for node in self._nodes if not isinstance(node, Gateway)))

    async def publish(
        self, node: int, phase: int, numbers: tuple[int, int], gap_seconds: float = 0.0
    ) -> None:
        for number in range(*numbers):
            self._nodes[node].publish(phase, number)
            if gap_seconds:
                await asyncio.sleep(gap_seconds)

    async def count(self, phase: int) -> list[int]:
        """How many messages of the phase each node has."""
        return [len(heard.numbers) for heard in self._heard(phase)]

    async def delays(self, phase: int) -> dict[str, Any]:
        heard = self._heard(phase)
        return {
            "seconds": [delay for one in heard for delay in one.delays],
            "last_at": max(one.last_at for one in heard),
        }

    def _heard(self, phase: int) -> list[Heard]:
        return [node.heard.get(phase) or Heard() for node in self._nodes]

    async def offer(self, node: int, key: str) -> PeerId:
        self._nodes[node].offer(key.encode())
        return self._nodes[node].swarm.peer

    async def is_connected(self, node: int, peer: PeerId) -> bool:
        return peer in self._nodes[node].connections

    async def look_up(
        self, node: int, key: str, provider: PeerId, seconds_max: float
    ) -> tuple[list[str], float]:
        """What was not found, and the milliseconds that it took."""
        began = time.perf_counter()
        missing: list[str] = []
        search = self._nodes[node].look_up(key.encode(), provider, missing)
        try:
            await asyncio.wait_for(search, seconds_max)
        except TimeoutError:
            missing.append("in time")
        return missing, (time.perf_counter() - began) * 1000

    async def usage(self) -> dict[str, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        connections = sum(len(node.connections) for node in self._nodes)
        return {
            "cpu_s": used.ru_utime + used.ru_stime,
            "pss_mb": pss_mb(os.getpid()),
            "connections": connections,
        }


class Gateway(BenchNode):
    """The product's gateway, and the counting of a node beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.listener = _CountingGateway(self)

    def start(self, swarm: Libp2pSwarm) -> None:
        super().start(swarm)
        self.listener.start(swarm)


class _CountingGateway(GatewayNode):
    def __init__(self, counts: BenchNode) -> None:
        clock = LoopClock(asyncio.get_running_loop())
        super().__init__(clock, Random(), SWARM_NAME, lambda _event, **_fields: None)
        self._counts = counts
        self.providers_found = counts.providers_found  # type: ignore[method-assign]
        self.record_found = counts.record_found  # type: ignore[method-assign]

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        super().connected(peer, admission, address, relayed)
        self._counts.connections.add(peer)

    def disconnected(self, peer: PeerId, cause: str) -> None:
        super().disconnected(peer, cause)
        self._counts.connections.discard(peer)

    def gossip(self, topic: str, source: PeerId, data: bytes) -> None:
        if topic == TOPIC:
            self._counts.gossip(topic, source, data)


async def _main() -> None:
    house = House()
    await answer_calls({name: getattr(house, name) for name in CALLS})
    os._exit(0)  # hundreds of connections need no goodbye


if __name__ == "__main__":
    uvloop.run(_main())
