"""Who has joined a gateway, and samples of them for newcomers.

A sample costs what it is long, however many have joined: every member may ask for one hundreds
of times a second. Of those who joined by one invite, however many, as many are drawn from as
they have shares: else somebody with many identities would be all that newcomers hear of.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

from mycel.core.identifiers import PeerId
from mycel.core.messages import PeerRecord
from mycel.core.principal import Family

PEERS_MAX: Final = 100_000
ADDRESSES_MAX: Final = 16
ADDRESS_LENGTH_MAX: Final = 512
"""So that a sample fits into a frame, whatever its peers say of themselves."""
_FIRST: Final = ("scheduler", "gateway")
"""A worker can use schedulers at once, and everybody a second gateway."""


class JoinedPeers:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._records: dict[PeerId, PeerRecord] = {}
        self._first = _Urn()
        self._others = _Urn()

    @property
    def records(self) -> list[PeerRecord]:
        return list(self._records.values())

    def enter(
        self,
        peer: PeerId,
        roles: frozenset[str],
        addresses: tuple[str, ...],
        family: Family | None = None,
    ) -> bool:
        """Whether it is new. The roles are those of its token, the addresses its own word."""
        is_new = peer not in self._records
        if is_new and len(self._records) >= PEERS_MAX:
            return False
        self.leave(peer)
        usable = tuple(filter(_is_usable, addresses))[:ADDRESSES_MAX]
        self._records[peer] = PeerRecord(peer, tuple(sorted(roles)), usable)
        (self._first if roles.intersection(_FIRST) else self._others).put(peer, family)
        return is_new

    def leave(self, peer: PeerId) -> bool:
        """Whether it had joined."""
        self._first.take(peer)
        self._others.take(peer)
        return self._records.pop(peer, None) is not None

    def sample(self, count: int, besides: PeerId) -> list[PeerRecord]:
        """At random, the most useful first."""
        drawn = self._first.draw(self._random, count + 1)
        if len(drawn) <= count:
            drawn += self._others.draw(self._random, count + 1 - len(drawn))
        return [self._records[peer] for peer in drawn if peer != besides][:count]


def _is_usable(address: str) -> bool:
    return address.isascii() and len(address) <= ADDRESS_LENGTH_MAX


class _Urn:
    """Peers to draw from. The last one moves into a place that falls vacant."""

    def __init__(self) -> None:
        self._peers: list[PeerId] = []
        self._places: dict[PeerId, int] = {}
        self._families: dict[PeerId, Family] = {}
        self._inside: Counter[bytes] = Counter()
        """How many of each family are drawn from."""
        self._waiting: dict[bytes, dict[PeerId, None]] = {}
        """Those of full families."""

    def put(self, peer: PeerId, family: Family | None) -> None:
        if family is not None:
            self._families[peer] = family
            if self._inside[family.serial] >= family.shares:
                self._waiting.setdefault(family.serial, {})[peer] = None
                return
            self._inside[family.serial] += 1
        self._places[peer] = len(self._peers)
        self._peers.append(peer)

    def take(self, peer: PeerId) -> None:
        """If it is there."""
        family = self._families.pop(peer, None)
        place = self._places.pop(peer, None)
        if place is not None:
            last = self._peers.pop()
            if last != peer:
                self._peers[place] = last
                self._places[last] = place
        if family is not None:
            self._leave(peer, family, was_inside=place is not None)

    def _leave(self, peer: PeerId, family: Family, was_inside: bool) -> None:
        waiting = self._waiting.get(family.serial, {})
        waiting.pop(peer, None)
        successor = next(iter(waiting), None) if was_inside else None
        if was_inside:
            self._inside[family.serial] -= 1
        if successor is not None:
            del waiting[successor]
            self.put(successor, self._families[successor])
        if not waiting:
            self._waiting.pop(family.serial, None)
        if not self._inside[family.serial]:
            del self._inside[family.serial]

    def draw(self, random: Random, count: int) -> list[PeerId]:
        return random.sample(self._peers, min(count, len(self._peers)))
