"""The scheduler's node, as the API shows it."""

from __future__ import annotations

import asyncio
from collections import Counter

from mycel.api.routes.network_routes import PING_SECONDS, DiscoveryAnswer, PeerAnswer, SwarmAnswer
from mycel.core.identifiers import PeerId
from mycel.core.scheduler import Scheduler
from mycel.discovery.methods import Ways
from mycel.runtime.clock import boot_seconds
from mycel.swarm.interface import PeerFacts, SwarmFigures

from .scheduler_node import SchedulerNode


class SchedulerNetwork:
    """`api.network.Network`."""

    def __init__(
        self, node: SchedulerNode, machine: Scheduler, name: str, version: str, ways: Ways
    ) -> None:
        self._node = node
        self._machine = machine
        self._name = name
        self._version = version
        self._ways = ways

    def figures(self) -> SwarmFigures:
        return self._node.swarm.figures() if self._node.is_started else SwarmFigures()

    def peers(self) -> list[PeerAnswer]:
        now, names = boot_seconds(), self.known()
        return [self._peer(one, now, names) for one in self._node.swarm.peers()]

    def _peer(self, facts: PeerFacts, now: float, names: dict[str, str]) -> PeerAnswer:
        rtt = facts.rtt_seconds
        return PeerAnswer(
            peer_id=facts.peer,
            name=names.get(facts.peer, ""),
            roles=sorted(facts.roles),
            addresses=facts.addresses,
            path="relayed" if facts.relayed else "direct",
            rtt_ms=None if rtt is None else round(rtt * 1000, 3),
            connected_seconds=round(max(0.0, now - facts.connected_at), 3),
            last_seen_seconds=round(max(0.0, now - facts.last_heard_at), 3),
            version=facts.software,
            revocation_ids=self._node.revocation_ids_of(facts.peer),
        )

    def status(self) -> SwarmAnswer:
        swarm, figures = self._node.swarm, self._machine.figures()
        searching = self._node.searching
        roles = Counter(role for one in swarm.peers() for role in one.roles)
        return SwarmAnswer(
            name=self._name,
            peer_id=swarm.peer,
            roles=["scheduler"],
            version=self._version,
            addresses=swarm.addresses,
            gateways=list(self._node.gateways),
            reservations=list(self._node.reservations),
            peers=dict(sorted(roles.items())),
            paths=dict(swarm.figures().connections),
            workers_linked=figures.workers_linked,
            workers_known=figures.workers_known,
            discovery=DiscoveryAnswer(
                self._ways.dht,
                self._ways.gossip,
                self._ways.shard_bits,
                searching.searches_total,
                searching.found_total,
            ),
            checks_late=figures.checks_late,
        )

    def known(self) -> dict[str, str]:
        found = {str(one.peer): "" for one in self._node.swarm.peers()}
        return found | {str(peer): name for peer, name in self._machine.names_of_workers().items()}

    async def ping(self, peer: str, count: int) -> tuple[list[float], str]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[list[float], str]] = loop.create_future()

        def measured(seconds: list[float], error: str) -> None:
            if not answer.done():
                answer.set_result((seconds, error))

        self._node.ping(PeerId(peer), count, PING_SECONDS, measured)
        return await answer
