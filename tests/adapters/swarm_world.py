"""What the conformance suite needs: a listener that remembers, and the two worlds."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final, Protocol

from mycel._native import identity
from mycel.access.tokens import Statement, issue
from mycel.core.identifiers import PeerId
from mycel.swarm.interface import (
    Admission,
    DialFailure,
    Liveness,
    SignedRecord,
    Stream,
    StreamProtocol,
    Swarm,
)
from mycel.swarm.libp2p import Libp2pSettings, Libp2pSwarm
from mycel.testing.swarm.memory_swarm import Faults, MemoryNetwork, MemorySwarm

DEADLINE_SECONDS: Final = 20.0

BEATING: Final = StreamProtocol(
    name="/test/beating/1",
    max_frame_bytes=64 * 1024,
    heartbeats=True,
    write_high_bytes=256 * 1024,
)
QUIET: Final = StreamProtocol(name="/test/quiet/1", max_frame_bytes=1 << 20, heartbeats=False)
PROTOCOLS: Final = (BEATING, QUIET)
LIVENESS: Final = Liveness(heartbeat_seconds=0.05, silence_seconds=0.4, repeat_seconds=0.2)
ROLES: Final = frozenset({"scheduler", "worker"})
SWARM: Final = "test"


class Recorder:
    """Remembers everything it is told; a stream's story is checked as it goes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []
        self.peers: dict[PeerId, frozenset[str]] = {}
        self.admissions: dict[PeerId, Admission] = {}
        self.causes: list[str] = []
        self.dialled: list[tuple[str, PeerId]] = []
        self.dial_failures: list[tuple[str, DialFailure, str]] = []
        self.streams: list[Stream] = []
        self.ours: list[Stream] = []
        self.stream_failures: list[tuple[PeerId, str, str]] = []
        self.received: list[bytes] = []
        self.arrivals: list[float] = []
        self.beats: list[tuple[float, float]] = []
        self.silences: list[float] = []
        self.writables = 0
        self.ends: list[tuple[Stream, str]] = []
        self.messages: list[tuple[str, PeerId, bytes]] = []
        self.relayed: dict[PeerId, bool] = {}
        self.providers: dict[int, list[PeerId]] = {}
        self.finished: list[int] = []
        self.records: dict[int, SignedRecord | None] = {}
        self.reservations: list[tuple[PeerId, bool, str]] = []
        self.cuts: list[tuple[PeerId, str]] = []
        self.round_trips: list[float] = []
        self.knocks: list[PeerId] = []
        self.refusals: list[str] = []
        self.echo = False

    def _note(self, name: str, about: object) -> None:
        self.events.append((name, about))

    def _on_stream(self, name: str, stream: Stream) -> None:
        assert stream in self.streams, f"{name} before stream_opened"
        assert all(stream is not ended for ended, _ in self.ends), f"{name} after stream_closed"
        self._note(name, stream)

    def connected(self, peer: PeerId, admission: Admission, address: str, relayed: bool) -> None:
        assert peer not in self.peers, "connected twice"
        assert address.startswith("/")
        self.peers[peer] = admission.roles
        self.admissions[peer] = admission
        self.relayed[peer] = relayed
        self._note("connected", peer)

    def path_changed(self, peer: PeerId, address: str, relayed: bool) -> None:
        assert address.startswith("/")
        assert self.relayed[peer] != relayed, "the path is what it was"
        self.relayed[peer] = relayed
        self._note("path_changed", peer)

    def disconnected(self, peer: PeerId, cause: str) -> None:
        del self.peers[peer]
        ended = [stream for stream, _ in self.ends]
        left = [s for s in self.streams if s.peer == peer and s not in ended]
        assert not left, "disconnected before its streams were closed"
        self.causes.append(cause)
        self._note("disconnected", peer)

    def dial_succeeded(self, address: str, peer: PeerId) -> None:
        assert peer in self.peers, "a dial succeeded without a connection"
        self.dialled.append((address, peer))

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        assert error
        self.dial_failures.append((address, failure, error))

    def stream_opened(self, stream: Stream, ours: bool) -> None:
        assert stream.peer in self.peers, "a stream without a connection"
        self.streams.append(stream)
        if ours:
            self.ours.append(stream)
        self._note("stream_opened", stream)

    def stream_failed(self, peer: PeerId, protocol: str, error: str) -> None:
        assert error
        self.stream_failures.append((peer, protocol, error))

    def frames(self, stream: Stream, frames: list[bytes], arrived_at: float) -> None:
        self._on_stream("frames", stream)
        self.received.extend(frames)
        self.arrivals.append(arrived_at)
        if self.echo:
            for frame in frames:
                stream.write(frame)

    def heartbeat(self, stream: Stream, peer_clock: float, arrived_at: float) -> None:
        self._on_stream("heartbeat", stream)
        self.beats.append((peer_clock, arrived_at))

    def silent(self, stream: Stream, seconds: float) -> None:
        self._on_stream("silent", stream)
        self.silences.append(seconds)

    def writable(self, stream: Stream) -> None:
        self._on_stream("writable", stream)
        self.writables += 1

    def stream_closed(self, stream: Stream, error: str) -> None:
        self._on_stream("stream_closed", stream)
        self.ends.append((stream, error))

    def gossip(self, topic: str, source: PeerId, data: bytes) -> None:
        self.messages.append((topic, source, data))

    def providers_found(self, query: int, peers: list[PeerId], finished: bool) -> None:
        assert query not in self.finished, "found after the end"
        known = self.providers.setdefault(query, [])
        assert not set(known) & set(peers), "found twice"
        known.extend(peers)
        if finished:
            self.finished.append(query)

    def record_found(self, query: int, record: SignedRecord | None) -> None:
        assert query not in self.records, "answered twice"
        self.records[query] = record

    def addresses_changed(self) -> None:
        self._note("addresses_changed", None)

    def reservation(self, gateway: PeerId, held: bool, error: str) -> None:
        assert held or error
        self.reservations.append((gateway, held, error))

    def cut_off(self, peer: PeerId, reason: str) -> None:
        assert reason
        self.cuts.append((peer, reason))

    def round_trip(self, peer: PeerId, seconds: float) -> None:
        assert peer
        self.round_trips.append(seconds)

    def knocked(self, peer: PeerId, seconds: float) -> None:
        assert seconds >= 0.0
        self.knocks.append(peer)

    def refused(self, address: str, error: str) -> None:
        assert address
        self.refusals.append(error)


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Waits for a condition; the deadline is for a test that fails, not a delay."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what or condition}"
        await asyncio.sleep(0.002)


class World(Protocol):
    """One implementation, as the suite sees it."""

    async def start(
        self, recorder: Recorder, protocols: Sequence[StreamProtocol] = PROTOCOLS
    ) -> Swarm: ...
    async def start_gateway(self, recorder: Recorder) -> Swarm: ...
    async def stop(self, swarm: Swarm) -> None: ...
    async def close(self) -> None: ...
    def now(self) -> float:
        """The clock of `arrived_at`."""
        ...

    def wall(self) -> float:
        """The clock of a record's expiry."""
        ...

    def nobody(self) -> str:
        """An address where nobody listens."""
        ...

    async def open_to_knocks(self, swarm: Swarm) -> str:
        """An address of it that can be knocked at."""
        ...


class Libp2pWorld:
    """Native nodes on loopback."""

    def __init__(self) -> None:
        self.owner_secret = os.urandom(32)
        self.owner_public, _ = identity(self.owner_secret)
        self.swarms: list[Libp2pSwarm] = []

    def token(self, peer: PeerId, lifetime_seconds: int = 3600) -> bytes:
        expires_at = int(time.time()) + lifetime_seconds
        grant = Statement(roles=tuple(ROLES), expires_at=expires_at, peer=peer)
        return issue(self.owner_secret, SWARM, grant)

    async def start(
        self,
        recorder: Recorder,
        protocols: Sequence[StreamProtocol] = PROTOCOLS,
        *,
        address: str = "/ip4/127.0.0.1/tcp/0",
        token: bytes | None = None,
        settings: Libp2pSettings | None = None,
    ) -> Libp2pSwarm:
        secret = os.urandom(32)
        _, peer = identity(secret)
        swarm = await Libp2pSwarm.start(
            secret=secret,
            owner_public=self.owner_public,
            token=self.token(peer) if token is None else token,
            swarm_name=SWARM,
            listener=recorder,
            protocols=protocols,
            listen_addresses=[address],
            liveness=LIVENESS,
            settings=settings or Libp2pSettings(gossip_heartbeat_seconds=0.1),
        )
        self.swarms.append(swarm)
        return swarm

    async def start_gateway(self, recorder: Recorder) -> Libp2pSwarm:
        return await self.start(recorder, settings=Libp2pSettings.for_gateway())

    async def stop(self, swarm: Swarm) -> None:
        assert isinstance(swarm, Libp2pSwarm)
        await swarm.stop()

    async def close(self) -> None:
        await asyncio.gather(*(swarm.stop() for swarm in self.swarms))

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        return time.time()

    def nobody(self) -> str:
        return "/ip4/127.0.0.1/tcp/1"

    async def open_to_knocks(self, swarm: Swarm) -> str:
        assert isinstance(swarm, Libp2pSwarm)
        return await swarm.listen("/ip4/127.0.0.1/udp/0/quic-v1")


class LoopClock:
    """The event loop's time for the in-memory network."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        self._loop.call_at(when, callback)


class MemoryWorld:
    """In-memory nodes, here in real time."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        faults = Faults(delay_seconds_max=0.003, dial_timeout_seconds=0.2)
        self.network = MemoryNetwork(self.clock, Random(7), faults)
        self.swarms: list[MemorySwarm] = []

    async def start(
        self,
        recorder: Recorder,
        protocols: Sequence[StreamProtocol] = PROTOCOLS,
        *,
        roles: frozenset[str] = ROLES,
    ) -> MemorySwarm:
        peer = PeerId(f"peer-{len(self.swarms)}")
        swarm = self.network.start(peer, recorder, protocols, liveness=LIVENESS, roles=roles)
        self.swarms.append(swarm)
        return swarm

    async def start_gateway(self, recorder: Recorder) -> MemorySwarm:
        return await self.start(recorder, roles=frozenset({"gateway"}))

    async def stop(self, swarm: Swarm) -> None:
        assert isinstance(swarm, MemorySwarm)
        await swarm.stop()

    async def close(self) -> None:
        for swarm in self.swarms:
            await swarm.stop()

    def now(self) -> float:
        return self.clock.now()

    def wall(self) -> float:
        return self.clock.now()

    def nobody(self) -> str:
        return "/memory/nobody"

    async def open_to_knocks(self, swarm: Swarm) -> str:
        return swarm.addresses[0]


async def pair(
    world: World, protocol: StreamProtocol = BEATING
) -> tuple[Recorder, Recorder, Swarm, Swarm]:
    """Two nodes with one stream, opened by the first, which dialled."""
    near, far = Recorder(), Recorder()
    dialer, acceptor = await world.start(near), await world.start(far)
    dialer.dial(acceptor.addresses[0])
    await until(lambda: near.dialled and far.peers, "connection")
    dialer.open_stream(acceptor.peer, protocol.name)
    await until(lambda: near.streams and far.streams, "stream")
    return near, far, dialer, acceptor


Story = Callable[[World], Awaitable[None]]
WORLDS: Final[dict[str, Callable[[], World]]] = {"libp2p": Libp2pWorld, "memory": MemoryWorld}


async def play_in(name: str, story: Story) -> None:
    """Runs one story in one of the worlds, and closes the world behind it."""
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    world = WORLDS[name]()
    try:
        await story(world)
    finally:
        await world.close()
    assert not faults
