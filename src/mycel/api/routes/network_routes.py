"""The swarm as this scheduler's node sees it: peers, its own standing, and pings."""

from __future__ import annotations

from typing import Annotated, Final, Protocol

import msgspec

from mycel.api.http.exchange import Request
from mycel.api.http.problems import Problem

PINGS_MAX: Final = 100
PING_SECONDS: Final = 10.0


class PeerAnswer(msgspec.Struct, frozen=True):
    peer_id: str
    name: str
    """Of a worker; else empty."""
    roles: list[str]
    addresses: list[str]
    path: str
    """`direct` or `relayed`"""
    rtt_ms: float | None
    connected_seconds: float
    last_seen_seconds: float
    """Since the last byte of it."""
    version: str
    revocation_ids: list[str]
    """Of its token: to revoke the last puts this machine out, the first its invite too."""


class PeerList(msgspec.Struct, frozen=True):
    items: list[PeerAnswer]
    next: str | None


class DiscoveryAnswer(msgspec.Struct, frozen=True):
    dht: bool
    gossip: bool
    shard_bits: int
    searches: int
    """In the DHT, since the start…"""
    workers_found: int
    """…and what they have found."""


class SwarmAnswer(msgspec.Struct, frozen=True):
    name: str
    """Of this node."""
    peer_id: str
    roles: list[str]
    version: str
    addresses: list[str]
    gateways: list[str]
    """That are connected."""
    reservations: list[str]
    """Gateways through which others can reach this node."""
    peers: dict[str, int]
    """Connected ones, by role."""
    paths: dict[str, int]
    """Connections, `direct` and `relayed`, and by transport."""
    workers_linked: int
    workers_known: int
    """With a link or without."""
    discovery: DiscoveryAnswer
    checks_late: int = 0
    """How often a worker without a link was asked for a sign of life too late."""


class PingBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    peer: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    """A peer id, a unique part of one, or a worker's name."""
    count: Annotated[int, msgspec.Meta(ge=1, le=PINGS_MAX)] = 4


class PingAnswer(msgspec.Struct, frozen=True):
    peer_id: str
    path: str
    sent: int
    received: int
    min_ms: float | None
    avg_ms: float | None
    max_ms: float | None
    round_trips_ms: list[float]
    error: str | None


class Network(Protocol):
    """What the API asks of the scheduler's node. On the loop's thread."""

    def peers(self) -> list[PeerAnswer]: ...
    def status(self) -> SwarmAnswer: ...
    async def ping(self, peer: str, count: int) -> tuple[list[float], str]:
        """Round trips in seconds, and what went wrong, if anything did."""
        ...

    def known(self) -> dict[str, str]:
        """Peer ids of everybody that could be meant, with their names."""
        ...


async def list_peers(request: Request) -> None:
    request.query()
    peers = request.backend.network.peers()
    await request.answer(PeerList(sorted(peers, key=lambda one: (one.roles, one.peer_id)), None))


async def show_swarm(request: Request) -> None:
    request.query()
    await request.answer(request.backend.network.status())


async def ping(request: Request) -> None:
    request.query()
    asked = msgspec.json.decode(await request.body(), type=PingBody)
    network = request.backend.network
    peer = _meant(network.known(), asked.peer)
    seconds, error_text = await network.ping(peer, asked.count)
    trips = [round(one * 1000, 3) for one in seconds]
    path = next((one.path for one in network.peers() if one.peer_id == peer), "")
    await request.answer(
        PingAnswer(
            peer_id=peer,
            path=path,
            sent=asked.count,
            received=len(trips),
            min_ms=min(trips, default=None),
            avg_ms=round(sum(trips) / len(trips), 3) if trips else None,
            max_ms=max(trips, default=None),
            round_trips_ms=trips,
            error=error_text or None,
        )
    )


def _meant(known: dict[str, str], text: str) -> str:
    """Peer ids of one kind begin alike, so that any unique part will do."""
    if text in known:
        return text
    named = [peer for peer, name in known.items() if name == text]
    found = named or [peer for peer in known if text in peer]
    if len(found) == 1:
        return found[0]
    if found:
        raise Problem(409, f"{text!r} could be {len(found)} peers: give more of its id")
    raise Problem(404, f"no peer {text!r} is known; 'mycel peers' lists those that are connected")
