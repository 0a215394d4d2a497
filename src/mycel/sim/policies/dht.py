"""A distributed hash table of what servers have: capability look-up.

Every server publishes what it has free under the keys of its capabilities, once a period. A
scheduler that has a job looks its key up: as many rounds as the logarithm of the servers to the
base 16, three questions each. It gets some of the servers that are large enough, with what they
last published, and tries the emptiest first. What it has learnt counts for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from mycel.sim.entities import NS_PER_MS, Demand, Job, Task
from mycel.sim.policy import Options
from mycel.sim.reference_engine import Engine

from .refusals import RefusalOptions, RefusalPolicy

PARALLEL: Final = 3
"""Nodes asked in each round of a look-up: Kademlia's alpha."""
BITS_A_ROUND: Final = 4
COPIES: Final = 3
"""Nodes that keep a record."""


class DhtOptions(RefusalOptions, frozen=True, kw_only=True):
    publish_ms: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 1000.0
    records: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 20
    """Servers that a look-up returns."""
    cache_ms: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """For how long a scheduler uses what it looked up. Two jobs of one moment share it."""


class Found:
    """What one scheduler knows of one shape: servers, and how many such tasks each has room for."""

    def __init__(self, heard_ns: int, room: dict[int, int]) -> None:
        self.heard_ns: Final = heard_ns
        self.room: Final = room


class DhtLookUp(RefusalPolicy):
    name = "dht"
    options_type = DhtOptions

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, DhtOptions), "the engine makes our own options"
        self.options: Final = options
        self.cache_ns: Final = round(options.cache_ms * NS_PER_MS)
        bits = max(1, (len(self.servers) - 1).bit_length())
        self.rounds: Final = -(-bits // BITS_A_ROUND)
        self.published: Final[dict[int, tuple[int, int, int]]] = {}
        """Free cores, memory and GPU shares by server, as the table has them."""
        self.found: Final[dict[tuple[int, Demand], Found]] = {}
        self.ages_ns: Final[list[int]] = []
        self._able: Final[dict[Demand, list[int]]] = {}
        self._publish()
        engine.every(round(options.publish_ms * NS_PER_MS), self._publish)

    def _publish(self) -> None:
        """A record needs a look-up of its key, and a message to each node that keeps it."""
        for server in self.servers:
            if server.is_up:
                self.engine.counters.messages += 2 * PARALLEL * self.rounds + COPIES
                free = server.resources
                self.published[server.index] = (
                    free.cores_milli,
                    free.memory_mib,
                    sum(free.gpus_milli),
                )
            else:
                self.published.pop(server.index, None)

    # Looking up

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        by_demand: dict[Demand, list[Task]] = {}
        for task in tasks:
            by_demand.setdefault(task.demand, []).append(task)
        for demand, some in by_demand.items():
            found = self.found.get((self.entry(job), demand))
            if found is not None and self.engine.now - found.heard_ns <= self.cache_ns:
                self._assign(found, some)
            else:
                self._ask(self.rounds, job, demand, some)

    def _ask(self, rounds: int, job: Job, demand: Demand, tasks: list[Task]) -> None:
        """The slowest of the nodes asked in a round is on the way; the others are counted."""
        here, node = self.entry(job), self.random.below(len(self.servers))
        self.engine.counters.messages += 2 * (PARALLEL - 1)
        given = (node, rounds, job, demand, tasks)
        self.engine.send(here, node, self._asked, *given, tasks=tasks)

    def _asked(self, node: int, rounds: int, job: Job, demand: Demand, tasks: list[Task]) -> None:
        given = (rounds - 1, job, demand, tasks)
        self.engine.send(node, self.entry(job), self._answered, *given, tasks=tasks)

    def _answered(self, rounds: int, job: Job, demand: Demand, tasks: list[Task]) -> None:
        if rounds:
            self._ask(rounds, job, demand, tasks)
            return
        found = Found(self.engine.now, self._records(demand))
        self.found[self.entry(job), demand] = found
        self._assign(found, tasks)

    def _records(self, demand: Demand) -> dict[int, int]:
        """Some of the servers that are large enough, which `tries_max` leads to at last."""
        if demand not in self._able:
            self._able[demand] = [
                server.index for server in self.servers if self.is_able(server.index, demand)
            ]
        able = self._able[demand]
        drawn = [able[n] for n in self.random.distinct(self.options.records, len(able))]
        known = [server for server in drawn if server in self.published] or drawn
        return {server: self._room(server, demand) for server in known}

    def _room(self, server: int, demand: Demand) -> int:
        cores, memory, gpus = self.published.get(server, (0, 0, 0))
        needs = (demand.cores_milli, demand.memory_mib, demand.gpus * demand.gpu_milli)
        pairs = zip((cores, memory, gpus), needs, strict=True)
        return min(free // need for free, need in pairs if need)

    # Assigning

    def _assign(self, found: Found, tasks: Sequence[Task]) -> None:
        for task in tasks:
            server = max(found.room, key=found.room.__getitem__)
            found.room[server] -= 1
            self.ages_ns.append(self.engine.now - found.heard_ns)
            self.try_server(task, server)

    def refused(self, task: Task, server: int) -> None:
        """It has less than it published, so it is tried last."""
        found = self.found[self.entry(task.job), task.demand]
        if server in found.room:
            found.room[server] = min(found.room[server], 0) - 1
        self._assign(found, [task])
