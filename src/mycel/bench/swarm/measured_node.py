"""One node of the measured swarm: joins as the product's nodes do, and keeps count."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.messages import PeerRecord
from mycel.membership.joining import Joining
from mycel.runtime.clock import LoopClock
from mycel.swarm.interface import Admission, DialFailure, SignedRecord, Stream
from mycel.swarm.libp2p import Libp2pSwarm
from mycel.swarm.null_listener import IndifferentListener

from .measure_plan import MESSAGE_BYTES, TOPIC

RECORD_SECONDS: Final = 600.0
_HEAD: Final = struct.Struct(">HHd")
"""Of a message: phase, number, CLOCK_MONOTONIC at its publication (one clock for all
processes of a machine)."""


class Heard:
    """What one node has received of one phase."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.delays: list[float] = []
        self.last_at = 0.0

    def take(self, number: int, published_at: float) -> None:
        if number in self.numbers:
            return
        now = time.monotonic()
        self.numbers.add(number)
        self.delays.append(now - published_at)
        self.last_at = now


class BenchNode(IndifferentListener):
    """A worker, as far as the swarm can tell."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.connections: set[PeerId] = set()
        self.heard: dict[int, Heard] = {}
        self._swarm: Libp2pSwarm | None = None
        self._joining: Joining | None = None
        self._joined: asyncio.Future[None] = loop.create_future()
        self._wanted: dict[int, tuple[PeerId, asyncio.Future[bool]]] = {}
        self._next_query = 0

    @property
    def swarm(self) -> Libp2pSwarm:
        assert self._swarm is not None, "the node has not started"
        return self._swarm

    def start(self, swarm: Libp2pSwarm) -> None:
        self._swarm = swarm
        swarm.subscribe(TOPIC)

    async def join(self, gateway: str) -> None:
        """Returns when the gateway has answered."""
        clock = LoopClock(asyncio.get_running_loop())
        self._joining = Joining(clock, ("worker",), (gateway,), self._found)
        self._joining.start(self.swarm)
        await self._joined

    def _found(self, _record: PeerRecord) -> None:
        """Whom it meets is left to the routing of the swarm."""

    def publish(self, phase: int, number: int) -> None:
        head = _HEAD.pack(phase, number, time.monotonic())
        self.swarm.publish(TOPIC, head + os.urandom(MESSAGE_BYTES - len(head)))

    def offer(self, key: bytes) -> None:
        """Provides a capability, and publishes the record that goes with it."""
        self.swarm.put_record(b"record of " + key, 1, time.time() + RECORD_SECONDS)
        self.swarm.provide(key)

    async def look_up(self, key: bytes, provider: PeerId, missing: list[str]) -> None:
        """The key leads to its provider, and that to a record which is good; what is missing
        to that is left in the list."""
        missing += ["provider", "record"]
        query, found = self._ask(provider)
        self.swarm.find_providers(query, key)
        if not await found:
            return
        missing.remove("provider")
        query, found = self._ask(provider)
        self.swarm.get_record(query, provider)
        if await found:
            missing.remove("record")

    def _ask(self, provider: PeerId) -> tuple[int, asyncio.Future[bool]]:
        self._next_query += 1
        found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._wanted[self._next_query] = (provider, found)
        return self._next_query, found

    # What the swarm tells

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        self.connections.add(peer)
        if self._joining is not None:
            self._joining.connected(peer, admission.roles, address, relayed)

    def disconnected(self, peer: PeerId, cause: str) -> None:
        self.connections.discard(peer)
        if self._joining is not None:
            self._joining.disconnected(peer)

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        if self._joining is not None:
            self._joining.dial_failed(address, failure)

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        if ours and self._joining is not None:
            self._joining.stream_opened(stream)

    def stream_failed(self, peer: PeerId, protocol: str, error: str) -> None:
        if self._joining is not None:
            self._joining.stream_failed(peer)

    def stream_closed(self, stream: Stream, error: str) -> None:
        if self._joining is not None:
            self._joining.stream_closed(stream)

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        if self._joining is not None:
            self._joining.frames(stream, frames)
        if not self._joined.done():
            self._joined.set_result(None)

    def gossip(self, topic: str, source: PeerId, data: bytes) -> None:
        phase, number, published_at = _HEAD.unpack_from(data)
        self.heard.setdefault(phase, Heard()).take(number, published_at)

    def providers_found(self, query: int, peers: list[PeerId], finished: bool) -> None:
        if query in self._wanted:
            provider, found = self._wanted[query]
            if provider in peers or finished:
                self._answer(query, found, provider in peers)

    def record_found(self, query: int, record: SignedRecord | None) -> None:
        if query in self._wanted:
            self._answer(query, self._wanted[query][1], record is not None)

    def _answer(self, query: int, found: asyncio.Future[bool], is_found: bool) -> None:
        del self._wanted[query]
        if not found.done():  # whoever asked may have given up
            found.set_result(is_found)
