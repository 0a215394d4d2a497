"""A scheduler looks for workers in the DHT.

    shape ─▶ rarest facet ─▶ its keys ─▶ providers ─▶ their records ─▶ fresh, and suits? ─▶ found

A search goes through the shards of a facet, a few at a time, until it has found enough; only if
that was not enough, or a key had more providers than the DHT keeps, it goes on to the next
facet. What is found is a hint: the worker itself decides when it is called and asked.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from mycel.core.events import Sighting
from mycel.core.identifiers import PeerId
from mycel.core.matching import obstacle
from mycel.core.matching.index_keys import facets_asked
from mycel.core.model.work import Shape
from mycel.runtime.clock import Clock
from mycel.swarm.interface import SignedRecord, Swarm

from .dht_keys import sampled_keys
from .worker_record import UnreadableRecord, sighting_of

SEARCHES_MAX: Final = 16
"""At once; a shape that is not searched for now asks again later."""
QUERIES_MAX: Final = 8
"""At once, of one search."""
RECORDS_MAX: Final = 512
"""Looked up in one search."""
ANYBODY_FACETS: Final = ("driver=process", "driver=model")
"""Nearly every worker runs commands, or serves a model at least."""
ENOUGH: Final = 64
"""So many suitable workers end a search."""
FACETS_TRIED_MAX: Final = 3
PROVIDERS_FULL: Final = 20
"""A key with so many providers may have lost some."""
SEARCH_SECONDS_MAX: Final = 60.0


class _Search:
    def __init__(self, shape: Shape | None) -> None:
        """Without a shape it is for anybody."""
        self.shape = shape
        asked = ANYBODY_FACETS if shape is None else facets_asked(shape)
        self.first_facet: Final = asked[0]
        self.facets = list(asked[:FACETS_TRIED_MAX])
        self.keys: list[bytes] = []
        self.looking: dict[int, int] = {}
        """Queries for providers, and how many each has found."""
        self.reading: set[int] = set()
        self.met: set[PeerId] = set()
        self.to_read: list[PeerId] = []
        self.found = 0
        self.is_full = False

    def suits(self, sighting: Sighting) -> bool:
        return self.shape is None or obstacle(self.shape, sighting.capabilities) is None

    @property
    def is_enough(self) -> bool:
        return self.found >= ENOUGH or len(self.met) >= RECORDS_MAX


class Searching:
    def __init__(
        self,
        clock: Clock,
        random: Random,
        shard_bits: int,
        found: Callable[[Sighting], None],
        withdrawn: Callable[[PeerId], None],
        note: Callable[..., None],
    ) -> None:
        self._clock = clock
        self._random = random
        self._shard_bits = shard_bits
        self._found = found
        self._withdrawn = withdrawn
        self._note = note
        self._swarm: Swarm | None = None
        self._searches: dict[Shape | None, _Search] = {}
        self._queries: dict[int, _Search] = {}
        self._last_query = 0
        self.searches_total = 0
        self.found_total = 0

    def start(self, swarm: Swarm) -> None:
        self._swarm = swarm

    def stop(self) -> None:
        self._swarm = None
        self._searches.clear()
        self._queries.clear()

    def search_anybody(self) -> None:
        """For no task: to know who is there."""
        self._search(None)

    def search(self, shape: Shape) -> None:
        self._search(shape)

    def _search(self, shape: Shape | None) -> None:
        if self._swarm is None or shape in self._searches or len(self._searches) >= SEARCHES_MAX:
            return
        search = self._searches[shape] = _Search(shape)
        self.searches_total += 1

        def late() -> None:
            if self._searches.get(shape) is search:
                self._end(search)

        self._clock.call_at(self._clock.now() + SEARCH_SECONDS_MAX, late)
        self._go_on(search)

    # What the swarm tells

    def providers_found(self, query: int, peers: list[PeerId], finished: bool) -> None:
        search = self._queries.get(query)
        if search is None or self._swarm is None:
            return
        search.looking[query] += len(peers)
        for peer in peers:
            if peer not in search.met and peer != self._swarm.peer:
                search.met.add(peer)
                search.to_read.append(peer)
        if finished:
            search.is_full |= search.looking.pop(query) >= PROVIDERS_FULL
            del self._queries[query]
        self._go_on(search)

    def record_found(self, query: int, record: SignedRecord | None) -> None:
        search = self._queries.pop(query, None)
        if search is None:
            return
        search.reading.discard(query)
        if record is not None:
            self._read(search, record)
        self._go_on(search)

    def _read(self, search: _Search, record: SignedRecord) -> None:
        if not record.payload:
            self._withdrawn(record.peer)
            return
        try:
            sighting = sighting_of(record, self._clock.unix())
        except UnreadableRecord as error:
            self._note("unreadable_record", peer=record.peer, error=str(error))
            return
        if sighting is not None and search.suits(sighting):
            search.found += 1
            self.found_total += 1
            self._found(sighting)

    # One step after another

    def _go_on(self, search: _Search) -> None:
        swarm = self._swarm
        if swarm is None or self._searches.get(search.shape) is not search:
            return
        while search.to_read and len(search.reading) < QUERIES_MAX and search.found < ENOUGH:
            query = self._number(search)
            search.reading.add(query)
            swarm.get_record(query, search.to_read.pop())
        while len(search.looking) < QUERIES_MAX and not search.is_enough:
            if not search.keys and not self._next_facet(search):
                break
            query = self._number(search)
            search.looking[query] = 0
            swarm.find_providers(query, search.keys.pop(0))
        if not search.looking and not search.reading:
            self._end(search)

    def _next_facet(self, search: _Search) -> bool:
        """The next one only when all of the one before is known, and too little."""
        if search.looking or search.reading or search.to_read or not search.facets:
            return False
        if search.found and not search.is_full and search.shape is not None:
            return False
        search.is_full = False
        search.keys = sampled_keys(search.facets.pop(0), self._shard_bits, self._random)
        return True

    def _number(self, search: _Search) -> int:
        self._last_query += 1
        self._queries[self._last_query] = search
        return self._last_query

    def _end(self, search: _Search) -> None:
        del self._searches[search.shape]
        for query in (*search.looking, *search.reading):
            self._queries.pop(query, None)
        self._note("searched", facet=search.first_facet, met=len(search.met), found=search.found)
