"""Gangs: tasks that start all at once, on the servers of several homes if need be.

A home that has room for all starts them. Otherwise all homes hear of the gang. Gangs have one order
everywhere: priority, submission, number. Each home reserves the room that frees for the first gang
in that order, once no older task waits there, and offers it to its origin. When the origin has
enough, it starts all.

    origin ── announce ──▶ homes
    origin ◀── offer: held places ── home      whenever room frees
    origin ◀── yield ── home                   an earlier gang has come
    origin ── give back: places ──▶ home
    origin ── start: places, tasks ──▶ homes   and all others drop the gang

The first gang of all gets all room that frees, so one of them always starts: no two can wait for
each other. Nothing is backfilled into reserved room here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mycel.sim.entities import Demand, Task
from mycel.sim.ledger import Hold

from .waiting_line import rank

if TYPE_CHECKING:
    from .home import Home
    from .homes_policy import Homes


@dataclass(slots=True, eq=False)
class Gang:
    """All tasks have one shape."""

    order: tuple[int, int, int]
    origin: int
    demand: Demand
    tasks: list[Task]
    places: dict[int, list[Hold]] = field(default_factory=dict)
    """At the origin: what it holds, by home."""
    has_started: bool = False


class GangLine:
    """At a home."""

    def __init__(self, home: Home, homes: Homes) -> None:
        self._home: Final = home
        self._homes: Final = homes
        self._line: Final[list[Gang]] = []
        self._given: Final[dict[tuple[int, int, int], list[Hold]]] = {}

    def __bool__(self) -> bool:
        return bool(self._line)

    @property
    def rank(self) -> int:
        """Of the first, among all that wait here."""
        priority, submitted_ns, _ = self._line[0].order
        return rank(submitted_ns, -priority)

    def announced(self, gang: Gang) -> None:
        if gang.has_started or gang in self._line:
            return
        before = self._line[0] if self._line else None
        self._line.append(gang)
        self._line.sort(key=lambda one: one.order)
        if before is not None and self._line[0] is gang and self._given.get(before.order):
            there = self._homes.gang_origins
            self._homes.links.tell(
                self._home.number, before.origin, there.yielded, self._home.number, before
            )
        self._home.serve()

    def reserve(self) -> None:
        """For the first gang, up to all of its tasks: others may have none to give."""
        gang = self._line[0]
        given = self._given.setdefault(gang.order, [])
        places: list[Hold] = []
        while len(given) + len(places) < len(gang.tasks):
            hold = self._home.ledger.hold(gang.demand)
            if hold is None:
                break
            places.append(hold)
        if places:
            given += places
            there = self._homes.gang_origins
            self._homes.links.tell(
                self._home.number, gang.origin, there.offered, self._home.number, gang, places
            )

    def started(self, gang: Gang, places: list[Hold], tasks: list[Task]) -> None:
        """Starts these tasks on these places; the rest that was given is free again."""
        for task, place in zip(tasks, places, strict=True):
            self._home.launch(task, place)
        used = {id(place) for place in places}
        for place in self._given.pop(gang.order, []):
            if id(place) not in used:
                self._home.release(place)
        if gang in self._line:
            self._line.remove(gang)
        self._home.serve()

    def given_back(self, gang: Gang, places: list[Hold]) -> None:
        given = self._given.get(gang.order, [])
        for place in places:
            if any(place is one for one in given):
                given[:] = [one for one in given if one is not place]
                self._home.release(place)
        self._home.serve()

    def withdraw(self, origin: int) -> None:
        for gang in [gang for gang in self._line if gang.origin == origin]:
            self._line.remove(gang)
            for place in self._given.pop(gang.order, []):
                self._home.release(place)

    def clear(self) -> None:
        self._line.clear()
        self._given.clear()


class GangOrigins:
    """The gangs of all origins."""

    def __init__(self, homes: Homes) -> None:
        self._homes: Final = homes
        self._gangs: Final[list[Gang]] = []

    def place(self, origin: int, tasks: list[Task]) -> None:
        homes, job, demand = self._homes, tasks[0].job, tasks[0].demand
        own = homes.home(origin)
        if own is not None and not own.gangs:
            places = [own.ledger.hold(demand) for _ in tasks]
            held = [place for place in places if place is not None]
            if len(held) == len(tasks):
                for task, place in zip(tasks, held, strict=True):
                    own.launch(task, place)
                return
            for place in held:
                own.release(place)
        order = (-job.priority, job.arrival_ns, job.index)
        gang = Gang(order, origin, demand, tasks)
        self._gangs.append(gang)
        for home in sorted(homes.beliefs.able(demand) - homes.beliefs.dead):
            self._announce(home, gang)

    def _announce(self, home: int, gang: Gang) -> None:
        there = self._homes.homes[home].gangs
        self._homes.links.tell(gang.origin, home, there.announced, gang)

    def announce_all(self, home: int) -> None:
        """The home has servers again."""
        for gang in self._gangs:
            self._announce(home, gang)

    def offered(self, home: int, gang: Gang, places: list[Hold]) -> None:
        if gang.has_started or home in self._homes.beliefs.dead:
            return  # it frees them when it hears of the start
        gang.places.setdefault(home, []).extend(places)
        if sum(len(some) for some in gang.places.values()) >= len(gang.tasks):
            self._start(gang)

    def _start(self, gang: Gang) -> None:
        homes = self._homes
        gang.has_started = True
        self._gangs.remove(gang)
        rest = list(gang.tasks)
        for home in sorted(homes.beliefs.able(gang.demand) - homes.beliefs.dead):
            places = gang.places.get(home, [])[: len(rest)]
            tasks, rest = rest[: len(places)], rest[len(places) :]
            there = homes.homes[home].gangs
            homes.links.tell(gang.origin, home, there.started, gang, places, tasks, tasks=tasks)

    def yielded(self, home: int, gang: Gang) -> None:
        """What has started goes on; its home hears of that instead."""
        places = gang.places.pop(home, [])
        if not gang.has_started and places:
            there = self._homes.homes[home].gangs
            self._homes.links.tell(gang.origin, home, there.given_back, gang, places)

    def home_died(self, home: int) -> None:
        """Its servers have other homes now, which hear of all gangs anew."""
        for gang in list(self._gangs):
            gang.places.pop(home, None)

    def restart(self, origin: int) -> None:
        for gang in [gang for gang in self._gangs if gang.origin == origin]:
            self._gangs.remove(gang)
            self.place(origin, gang.tasks)
