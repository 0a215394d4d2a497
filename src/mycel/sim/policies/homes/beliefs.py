"""What a scheduler thinks that homes have free: from their answers, and by gossip.

An answer counts for a few milliseconds. After that a home is unknown, or what its last gossip said.
Gossip is older than tasks are long, and everybody hears the same. So the emptiest home of a round
of gossip is not the best one: each choice is between two homes drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import chain, islice
from typing import Final

from mycel.sim.entities import NS_PER_MS, Demand, Resources
from mycel.sim.ledger import Ledger
from mycel.sim.reference_engine import Engine

from .homes_options import UNKNOWN_SHARE, HomesOptions
from .scheduler_links import SchedulerLinks

LONG_AGO_NS: Final = -(10**18)
PEERS: Final = 3
"""Whom each scheduler gossips with in a round."""


class Beliefs:
    def __init__(
        self, engine: Engine, options: HomesOptions, ledgers: list[Ledger], links: SchedulerLinks
    ) -> None:
        self._engine: Final = engine
        self._ledgers: Final = ledgers
        self._links: Final = links
        count, everyone = len(ledgers), range(engine.schedulers)
        self._heard: Final = [[0] * count for _ in everyone]
        self._heard_ns: Final = [[LONG_AGO_NS] * count for _ in everyone]
        self._fresh_ns: Final = round(options.fresh_ms * NS_PER_MS)
        free = [ledger.cores_free_milli for ledger in ledgers]
        self._unknown_milli: Final = sum(free) // count // UNKNOWN_SHARE
        self._homes: Final = frozenset(range(count))
        self._able: Final[dict[Demand, frozenset[int]]] = {}
        self.dead: Final[set[int]] = set()
        self._gossiped: list[int] | None = None
        if options.gossip_ms:
            engine.every(round(options.gossip_ms * NS_PER_MS), self._gossip)

    # Hearing

    def hear(self, origin: int, home: int, free_milli: int) -> None:
        self._heard[origin][home] = free_milli
        self._heard_ns[origin][home] = self._engine.now

    def believed(self, origin: int, home: int) -> int:
        if self._engine.now - self._heard_ns[origin][home] <= self._fresh_ns:
            return self._heard[origin][home]
        return self._unknown_milli if self._gossiped is None else self._gossiped[home]

    def _gossip(self) -> None:
        """In each step every scheduler tells some others all sums that it has heard."""
        engine = self._engine
        steps = 1
        while (1 + PEERS) ** steps < engine.schedulers:
            steps += 1
        engine.counters.messages += PEERS * engine.schedulers
        sums = [ledger.cores_free_milli for ledger in self._ledgers]
        first = len(engine.servers)
        delay_ns = engine.network.delay_ns(first, first + engine.schedulers - 1) or 0
        engine.after(steps * delay_ns, self._hear_gossip, sums)

    def _hear_gossip(self, sums: list[int]) -> None:
        self._gossiped = sums

    # Choosing

    def able(self, demand: Demand) -> frozenset[int]:
        """The homes with a server that is large enough: what gossip tells of each shape."""
        if demand not in self._able:
            self._able[demand] = frozenset(
                home
                for home, ledger in enumerate(self._ledgers)
                if any(Resources(book.capacity).fits(demand) for book in ledger.books.values())
            )
        return self._able[demand]

    def members_changed(self) -> None:
        self._able.clear()

    def best(self, origin: int, demand: Demand, asked: Set[int], count: int) -> list[int]:
        """The homes believed to have most free, of those not asked yet."""
        start = self._engine.random.below(len(self._homes))
        excluded = asked | self.dead | (self._homes - self.able(demand))
        found: list[int] = []
        while len(found) < count:
            best = self._best_one(origin, excluded | set(found), start)
            if best < 0:
                break
            found.append(best)
        return found

    def _best_one(self, origin: int, excluded: Set[int], start: int) -> int:
        homes = self._candidates(origin, excluded, start)
        if self._gossiped is not None:
            again = self._engine.random.below(len(self._homes))
            homes = chain(islice(homes, 1), islice(self._candidates(origin, excluded, again), 1))
        best, most = -1, 0
        for home in homes:
            believed = self.believed(origin, home)
            if best < 0 or believed > most:
                best, most = home, believed
        return best

    def _candidates(self, origin: int, excluded: Set[int], start: int) -> Iterator[int]:
        homes, only_warm = len(self._homes), self._links.has_enough(origin)
        for step in range(homes):
            home = (start + step) % homes
            if home == origin or home in excluded:
                continue
            if not (only_warm and self._links.is_cold(origin, home)):
                yield home

    def shares(self, origin: int, targets: list[int], count: int) -> list[int]:
        """In proportion to what was heard; what rounding leaves goes to the first ones."""
        weights = [max(self.believed(origin, target), 0) + 1 for target in targets]
        shares = [count * weight // sum(weights) for weight in weights]
        for number in range(count - sum(shares)):
            shares[number % len(shares)] += 1
        return shares
