"""Homes: run here or forward. Mycel's own policy.

Every server has one home scheduler, which alone places on it. A scheduler starts what its own
servers have room for. It sends the rest in shares to four homes, the tasks with the request:

    origin ── request: tasks ──▶ home       starts what it can, notes the rest as wants
    origin ◀── answer: the rest ── home
    origin ── ask: how many ──▶ next home   one more home at a time, eight in all
    origin ◀── offer: held places ── home   at once for an ask, later when room frees
    origin ── fill: tasks ──▶ home          an empty fill gives the places back
    origin ── withdraw ──▶ homes            nothing waits any more

At a home its own waiting tasks and the wants of others stand in one line, by when it first heard of
them. A want is not for one task: the origin fills an offer with whatever has waited longest, so
each waiting task always has a want somewhere.

Simplified here: a scheduler hears what a home has free from the home's answers and offers, not by
gossip, which is slower than tasks end; wants do not expire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from mycel.sim.entities import NS_PER_MS, Demand, Job, Resources, Server, Task
from mycel.sim.ledger import Hold, Ledger
from mycel.sim.policy import Options, Policy
from mycel.sim.reference_engine import Engine
from mycel.topology.splitmix import mix_pair

UNKNOWN_SHARE: Final = 8
"""A home that was not heard of lately is taken to have one slot in so many free."""


ASK_AGAIN_NS: Final = 1000 * NS_PER_MS
"""After a partition, messages arrive out of order and a want can be lost: ask again."""


class HomesOptions(Options, frozen=True, kw_only=True):
    shares: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """Homes that get a part of what does not fit here."""
    asks: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """Homes asked for one job in all."""
    homes_max: Annotated[int, msgspec.Meta(ge=1)] = 32
    slots_per_home: Annotated[int, msgspec.Meta(ge=1)] = 500
    """A home has at least so many cores, unless fewer than three would remain."""
    cold_link_ms: Annotated[float, msgspec.Meta(ge=0)] = 4.0
    """What the first message between two schedulers costs both of them."""
    dials_per_home: Annotated[int, msgspec.Meta(ge=0)] = 100
    """A scheduler dials homes until it has links for `asks`, and until each home has about so many
    schedulers. From then on it stays with these: a dial costs more than it brings."""
    fresh_ms: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """What a home was heard to have free counts for this long; then it is unknown."""


Letter = tuple[bool, Callable[..., None], tuple[Any, ...]]
"""Whether its link was cold, its handler, and what for."""


@dataclass(slots=True)
class Want:
    """Room that an origin, perhaps the home itself, waits for."""

    origin: int
    demand: Demand
    count: int


def home_count(options: HomesOptions, schedulers: int, slots: int) -> int:
    return min(schedulers, options.homes_max, max(3, slots // options.slots_per_home))


def link_count(options: HomesOptions, schedulers: int, homes: int) -> int:
    """With so many links a scheduler has enough."""
    return max(options.asks, options.dials_per_home * homes // schedulers)


def home_of(server: int, homes: int) -> int:
    """By rendezvous hash."""
    return min(range(homes), key=lambda home: mix_pair(home, server))


def _by_demand(tasks: Sequence[Task]) -> dict[Demand, list[Task]]:
    found: dict[Demand, list[Task]] = {}
    for task in tasks:
        found.setdefault(task.demand, []).append(task)
    return found


class Homes(Policy):
    name = "homes"
    options_type = HomesOptions

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(engine, options)
        assert isinstance(options, HomesOptions), "the engine makes our own options"
        self.options: Final = options
        slots = sum(server.resources.capacity.cores_milli for server in self.servers) // 1000
        count = home_count(options, engine.schedulers, slots)
        members: list[list[int]] = [[] for _ in range(count)]
        for server in range(len(self.servers)):
            members[home_of(server, count)].append(server)
        self.home_by_server: Final = {
            server: home for home, some in enumerate(members) for server in some
        }
        self.ledgers: Final = [Ledger(self.servers, some) for some in members]
        self.lines: Final[list[deque[Want]]] = [deque() for _ in range(count)]
        everyone = range(engine.schedulers)
        self.waiting: Final[list[dict[Demand, deque[Task]]]] = [{} for _ in everyone]
        """At each origin, by shape: an offer of a place is for one shape."""
        self.wants_at: Final[list[set[int]]] = [set() for _ in everyone]
        self.unanswered: Final = [0 for _ in everyone]
        free = [ledger.cores_free_milli for ledger in self.ledgers]
        self.heard: Final = [[0] * count for _ in everyone]
        self.heard_ns: Final = [[-(10**18)] * count for _ in everyone]
        self.fresh_ns: Final = round(options.fresh_ms * NS_PER_MS)
        self.unknown_milli: Final = sum(free) // count // UNKNOWN_SHARE
        self._homes: Final = frozenset(range(count))
        self._able_homes: Final[dict[Demand, frozenset[int]]] = {}
        self.asked: Final[dict[tuple[int, Demand], set[int]]] = {}
        self.holds: Final[dict[int, Hold]] = {}
        self.warm: Final[set[tuple[int, int]]] = set()
        self.links_enough: Final = link_count(options, engine.schedulers, count)
        # Links to homes only: others have no room to offer.
        self.link_count: Final = [0 for _ in everyone]
        self.inboxes: Final[list[deque[Letter]]] = [deque() for _ in everyone]
        self.busy_until: Final = [0 for _ in everyone]
        self.cold_ns: Final = round(options.cold_link_ms * NS_PER_MS)

        if engine.has_faults:
            engine.every(ASK_AGAIN_NS, self._ask_again)

    # At the origin

    def place(self, job: Job, tasks: Sequence[Task]) -> None:
        origin = job.entry % self.engine.schedulers
        rest = self._start_here(origin, tasks)
        for demand, some in _by_demand(rest).items():
            self.asked[job.index, demand] = set()
            self._forward(origin, job, demand, some)

    def _forward(self, origin: int, job: Job, demand: Demand, rest: list[Task]) -> None:
        targets = self._best(origin, job, demand, self.options.shares)
        if not targets:
            self._wait(origin, rest)
            return
        first = 0
        for target, share in zip(targets, self._shares(origin, targets, len(rest)), strict=True):
            part = rest[first : first + share]
            first += share
            if part:
                self._contact(origin, target, job, demand)
                self._hear(
                    origin,
                    target,
                    self._believed(origin, target) - share * demand.cores_milli,
                )
                self._tell(origin, target, self._requested, target, origin, job, part, tasks=part)

    def _able(self, demand: Demand) -> frozenset[int]:
        """The homes with a server that is large enough: what gossip tells of each shape."""
        if demand not in self._able_homes:
            self._able_homes[demand] = frozenset(
                home
                for home, ledger in enumerate(self.ledgers)
                if any(Resources(book.capacity).fits(demand) for book in ledger.books.values())
            )
        return self._able_homes[demand]

    def _best(self, origin: int, job: Job, demand: Demand, count: int) -> list[int]:
        """The homes believed to have most free, of those not asked for this job yet."""
        start = self.random.below(len(self.lines))
        found: list[int] = []
        while len(found) < count:
            excluded = self.asked[job.index, demand].union(found, self._homes - self._able(demand))
            best = self._best_one(origin, excluded, start)
            if best < 0:
                break
            found.append(best)
        return found

    def _best_one(self, origin: int, excluded: set[int], start: int) -> int:
        homes, best, most = len(self.lines), -1, 0
        only_warm = self.link_count[origin] >= self.links_enough
        for step in range(homes):
            home = (start + step) % homes
            if home == origin or home in excluded:
                continue
            if only_warm and self._is_cold(origin, home):
                continue
            believed = self._believed(origin, home)
            if best < 0 or believed > most:
                best, most = home, believed
        return best

    def _believed(self, origin: int, home: int) -> int:
        if self.engine.now - self.heard_ns[origin][home] > self.fresh_ns:
            return self.unknown_milli
        return self.heard[origin][home]

    def _hear(self, origin: int, home: int, free_milli: int) -> None:
        self.heard[origin][home] = free_milli
        self.heard_ns[origin][home] = self.engine.now

    def _shares(self, origin: int, targets: list[int], count: int) -> list[int]:
        """In proportion to what was heard; what rounding leaves goes to the first ones."""
        weights = [max(self._believed(origin, target), 0) + 1 for target in targets]
        shares = [count * weight // sum(weights) for weight in weights]
        left = count - sum(shares)
        for number in range(left):
            shares[number % len(shares)] += 1
        return shares

    def _contact(self, origin: int, target: int, job: Job, demand: Demand) -> None:
        self.asked[job.index, demand].add(target)
        self.unanswered[origin] += 1

    def _wait(self, origin: int, tasks: Sequence[Task]) -> None:
        for demand, some in _by_demand(tasks).items():
            self.waiting[origin].setdefault(demand, deque()).extend(some)
            if origin in self._able(demand):
                self.lines[origin].append(Want(origin, demand, len(some)))

    def _answered(
        self, origin: int, home: int, job: Job, rest: list[Task], free_milli: int
    ) -> None:
        self.unanswered[origin] -= 1
        self._hear(origin, home, free_milli)
        if rest:
            self.wants_at[origin].add(home)
            rest = self._start_here(origin, rest)
        if rest:
            self._wait(origin, rest)
            for demand, some in _by_demand(rest).items():
                self._ask_next(origin, job, demand, len(some))
        self._withdraw_if_done(origin)

    def _ask_next(self, origin: int, job: Job, demand: Demand, count: int) -> None:
        if len(self.asked[job.index, demand]) >= self.options.asks:
            return
        for home in self._best(origin, job, demand, 1):
            self._contact(origin, home, job, demand)
            self._tell(origin, home, self._asked, home, origin, job, demand, count)

    def _ask_again(self) -> None:
        for origin, waiting in enumerate(self.waiting):
            for demand, tasks in waiting.items():
                if tasks:
                    job = tasks[0].job
                    self.asked[job.index, demand] = set()
                    self._ask_next(origin, job, demand, len(tasks))

    def _offered(
        self,
        origin: int,
        home: int,
        job: Job | None,
        demand: Demand,
        places: list[Hold],
        short: int,
        free_milli: int,
    ) -> None:
        """The answer to an ask for the job; or, without one, room that has freed."""
        self._hear(origin, home, free_milli)
        waiting = self.waiting[origin].get(demand, deque())
        if places:
            tasks = [waiting.popleft() for _ in range(min(len(places), len(waiting)))]
            self._tell(origin, home, self._filled, home, places, tasks, tasks=tasks)
        if job is not None:
            self.unanswered[origin] -= 1
            if short:
                self.wants_at[origin].add(home)
                if waiting:
                    self._ask_next(origin, job, demand, min(short, len(waiting)))
        self._withdraw_if_done(origin)

    def _withdraw_if_done(self, origin: int) -> None:
        if any(self.waiting[origin].values()) or self.unanswered[origin]:
            return  # a task that is out may come back, and then needs its want
        for home in sorted(self.wants_at[origin]):
            self._tell(origin, home, self._withdrawn, home, origin)
        self.wants_at[origin].clear()

    # At the home

    def _start_here(self, home: int, tasks: Sequence[Task]) -> list[Task]:
        """Starts what there is room for; returns the rest."""
        if home >= len(self.lines):
            return list(tasks)
        rest: list[Task] = []
        for task in tasks:
            hold = self.ledgers[home].hold(task.demand)
            if hold is None:
                rest.append(task)
            else:
                self._launch(home, task, hold)
        return rest

    def _launch(self, home: int, task: Task, hold: Hold) -> None:
        self.holds[task.index] = hold
        self.engine.send(
            self.scheduler(home),
            hold[0],
            self._run,
            task,
            hold,
            tasks=[task],
            earliest_ns=self._earliest(home, hold[0]),
        )

    def _run(self, task: Task, hold: Hold) -> None:
        self.engine.start(task, hold[0], hold[2])

    def _requested(self, home: int, origin: int, job: Job, tasks: list[Task]) -> None:
        rest = self._start_here(home, tasks)
        for demand, some in _by_demand(rest).items():
            if home in self._able(demand):
                self.lines[home].append(Want(origin, demand, len(some)))
        free = self.ledgers[home].cores_free_milli
        self._tell(home, origin, self._answered, origin, home, job, rest, free, tasks=rest)

    def _asked(self, home: int, origin: int, job: Job, demand: Demand, count: int) -> None:
        places = self._hold(home, demand, count)
        short = count - len(places)
        if short:
            self.lines[home].append(Want(origin, demand, short))
        free = self.ledgers[home].cores_free_milli
        self._tell(home, origin, self._offered, origin, home, job, demand, places, short, free)

    def _hold(self, home: int, demand: Demand, count: int) -> list[Hold]:
        places: list[Hold] = []
        while len(places) < count:
            hold = self.ledgers[home].hold(demand)
            if hold is None:
                break
            places.append(hold)
        return places

    def _filled(self, home: int, places: list[Hold], tasks: list[Task]) -> None:
        for task, place in zip(tasks, places, strict=False):
            self._launch(home, task, place)
        for place in places[len(tasks) :]:
            self.ledgers[home].release(place)
        if len(tasks) < len(places):
            self._serve(home)

    def _withdrawn(self, home: int, origin: int) -> None:
        line = self.lines[home]
        kept = [want for want in line if want.origin != origin]
        line.clear()
        line.extend(kept)

    def _serve(self, home: int) -> None:
        """Gives free room to the line, first come first served."""
        line = self.lines[home]
        while line:
            want = line[0]
            if want.origin == home and not self.waiting[home].get(want.demand):
                line.popleft()  # its tasks have found room elsewhere
                continue
            places = self._hold(home, want.demand, want.count)
            if not places:
                return
            want.count -= len(places)
            if not want.count:
                line.popleft()
            if want.origin == home:
                self._fill_own(home, want.demand, places)
            else:
                free = self.ledgers[home].cores_free_milli
                self._tell(
                    home,
                    want.origin,
                    self._offered,
                    want.origin,
                    home,
                    None,
                    want.demand,
                    places,
                    0,
                    free,
                )

    def _fill_own(self, home: int, demand: Demand, places: list[Hold]) -> None:
        waiting = self.waiting[home][demand]
        for place in places:
            if waiting:
                self._launch(home, waiting.popleft(), place)
            else:
                self.ledgers[home].release(place)
        self._withdraw_if_done(home)

    def finished(self, task: Task, server: Server) -> None:
        home = self.home_by_server[server.index]
        self.engine.send(
            server.index, self.scheduler(home), self._notice, home, task, is_completion=True
        )

    def _notice(self, home: int, task: Task) -> None:
        self.ledgers[home].release(self.holds.pop(task.index))
        self._serve(home)

    # Messages

    def _tell(
        self,
        source: int,
        target: int,
        handler: Callable[..., None],
        *arguments: Any,
        tasks: Sequence[Task] = (),
    ) -> None:
        """From a scheduler to another. Both pay for a link that was cold."""
        now = self.engine.now
        is_cold = self._is_cold(source, target)
        if is_cold:
            self.warm.add((min(source, target), max(source, target)))
            self.link_count[source] += target < len(self.lines)
            self.link_count[target] += source < len(self.lines)
            self.busy_until[source] = max(now, self.busy_until[source]) + self.cold_ns
        there = self.scheduler(target)
        self.engine.send(
            self.scheduler(source),
            there,
            self._deliver,
            target,
            is_cold,
            handler,
            arguments,
            tasks=tasks,
            is_repeated=True,
            earliest_ns=self._earliest(source, there),
        )

    def _is_cold(self, source: int, target: int) -> bool:
        return (min(source, target), max(source, target)) not in self.warm

    def _earliest(self, source: int, place: int) -> int:
        delay = self.engine.network.delay_ns(self.scheduler(source), place) or 0
        return max(self.engine.now, self.busy_until[source]) + delay

    def _deliver(
        self, target: int, is_cold: bool, handler: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        """Messages to a busy scheduler wait in its inbox, in the order of their arrival."""
        inbox = self.inboxes[target]
        inbox.append((is_cold, handler, arguments))
        if len(inbox) == 1:
            self._read(target)

    def _read(self, target: int) -> None:
        now, inbox = self.engine.now, self.inboxes[target]
        while inbox:
            is_cold, handler, arguments = inbox[0]
            if self.busy_until[target] <= now and is_cold and self.cold_ns:
                inbox[0] = (False, handler, arguments)
                self.busy_until[target] = now + self.cold_ns
            if self.busy_until[target] > now:
                self.engine.after(self.busy_until[target] - now, self._read, target)
                return
            inbox.popleft()
            handler(*arguments)

    # Failures

    def failed(self, server: Server, lost: Sequence[Task]) -> None:
        ledger = self.ledgers[self.home_by_server[server.index]]
        for task in lost:
            ledger.release(self.holds.pop(task.index))
        if not server.is_up:
            ledger.down.add(server.index)
        super().failed(server, lost)

    def returned(self, server: Server) -> None:
        home = self.home_by_server[server.index]
        self.ledgers[home].down.discard(server.index)
        self._serve(home)

    def undelivered(self, source: int, destination: int, tasks: Sequence[Task]) -> None:
        for task in tasks:
            hold = self.holds.pop(task.index, None)
            if hold is not None:
                self.ledgers[self.home_by_server[hold[0]]].release(hold)
        super().undelivered(source, destination, tasks)
