"""The scheduler that places on a server: starts what fits, and keeps a line of who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mycel.sim.entities import Demand, Job, Resources, Task
from mycel.sim.ledger import Hold, Ledger

from .fetch_ahead import AheadPlace, FetchAhead
from .gangs import GangLine
from .waiting_line import Want, WantLine

if TYPE_CHECKING:
    from .homes_policy import Homes
    from .origin import Origin

Place = Hold | AheadPlace


class Home:
    def __init__(self, number: int, ledger: Ledger, homes: Homes) -> None:
        self.number: Final = number
        self.ledger: Final = ledger
        self._homes: Final = homes
        self._place: Final = homes.scheduler(number)
        self._line: Final = WantLine()
        self.gangs: Final = GangLine(self, homes)
        self._offers: Final[dict[int, tuple[int, list[Place]]]] = {}
        """Places that were offered, by the offer's number: to whom, and which."""
        self._offer = 0
        wants_ahead = homes.options.fetch_ahead
        self._ahead: Final = FetchAhead(homes.engine, self._place) if wants_ahead else None
        self._wakes_ns = -1

    @property
    def is_alive(self) -> bool:
        return self.number not in self._homes.beliefs.dead

    # Its own servers

    def start(self, tasks: list[Task]) -> list[Task]:
        """Starts what there is room for; returns the rest."""
        rest: list[Task] = []
        for task in tasks:
            hold = self._hold(task.demand)
            if hold is None:
                rest.append(task)
            else:
                self.launch(task, hold)
        return rest

    def _hold(self, demand: Demand) -> Place | None:
        if (fragmentation := self._homes.fragmentation) is not None:
            best = fragmentation.best(self.ledger, demand)
            return None if best is None else self.ledger.book(best.server, demand, best.gpus)
        hold = self.ledger.hold(demand)
        if hold is None and self._ahead is not None:
            return self._ahead.find(demand)
        return hold

    def growth(self, demand: Demand) -> float | None:
        """What the task would cost here in fragmentation; None without room."""
        assert self._homes.fragmentation is not None, "only then homes are asked"
        best = self._homes.fragmentation.best(self.ledger, demand)
        return None if best is None else best.growth

    def launch(self, task: Task, place: Place) -> None:
        homes = self._homes
        if isinstance(place, AheadPlace) and place.hold is not None:
            place = place.hold
        arrival_ns = homes.links.earliest_ns(self.number, place.server)
        if isinstance(place, AheadPlace):
            if place.is_gone:
                homes.place(task.job, [task])
                return
            place.task = task
        else:
            homes.holds[task.index] = place
            if self._ahead is not None:
                self._ahead.started(task, place.server, arrival_ns)
        homes.engine.send(
            self._place,
            place.server,
            homes.run,
            task,
            place.server,
            place.gpus if isinstance(place, Hold) else (),
            tasks=[task],
            earliest_ns=arrival_ns,
        )

    def release(self, place: Place) -> None:
        if isinstance(place, AheadPlace) and place.hold is None:
            assert self._ahead is not None, "it has found the place"
            self._ahead.give_back(place)
        else:
            hold = place.hold if isinstance(place, AheadPlace) else place
            assert hold is not None, "the slot has been booked"
            self._homes.ledger_of(hold.server).release(hold)

    def ended(self, task: Task, server: int) -> None:
        """The server says that the task has ended."""
        homes = self._homes
        hold = homes.holds.pop(task.index, None)
        if hold is None:
            # Told late, by a server that has got another home meanwhile; or the task had overtaken
            # another one, which has its slot now.
            if self._ahead is not None:
                self._ahead.forget(task, server)
            return
        self.ledger.release(hold)
        if self._ahead is not None and (place := self._ahead.ended(task, server)) is not None:
            place.hold = self.ledger.book(server, place.demand, ())
            if place.task is not None:
                homes.holds[place.task.index] = place.hold
                self._ahead.started(place.task, server, homes.engine.now)
        self.serve()

    def forget(self, task: Task, server: int) -> None:
        """The task is lost. Gives back its place, if it still has one."""
        if self._ahead is not None and self._ahead.forget(task, server):
            return
        hold = self._homes.holds.pop(task.index, None)
        if hold is not None:
            self.ledger.release(hold)

    def give_away(self, server: int) -> tuple[Resources, list[Task]]:
        """The server gets another home: its book, and what was sent ahead to it."""
        ahead = [] if self._ahead is None else self._ahead.leave(server)
        return self.ledger.leave(server), ahead

    def take_over(self, server: int, book: Resources, ahead: list[Task]) -> None:
        self.ledger.join(server, book)
        if self._ahead is not None:
            self._ahead.take_over(server, ahead)
        self.serve()

    def evict_for(self, demand: Demand, priority: int, count: int) -> int:
        """Stops tasks of lower priority, the youngest first. For how many there will be room."""
        if not self._homes.options.preempt:
            return 0
        victims = self._homes.preemption.victims(self.ledger, demand, priority, count)
        for victim in victims:
            server = self._homes.holds[victim.index].server
            self._homes.engine.send(
                self._place, server, self._homes.evict, victim, victim.attempt, is_repeated=True
            )
        return len(victims)

    # The line

    def add_want(self, want: Want, priority: int) -> None:
        self._line.add(want, self._homes.engine.now, priority)
        self._wake_later()

    def serve(self) -> None:
        """Gives free room to the line, and reserves it for the first gang when that is older."""
        if not self._homes.engine.is_place_up(self._place):
            return
        while self._line:
            want = self._line.first
            if self.gangs and self.gangs.rank <= self._line.rank:
                self.gangs.reserve()
            if want.origin == self.number and not self._own.waiting.count(want.demand):
                self._line.pop()  # its tasks have found room elsewhere
                continue
            places = self._hold_several(want.demand, want.count)
            if not places:
                self._wake_later()
                break
            want.count -= len(places)
            if not want.count:
                self._line.pop()
            if want.origin == self.number:
                self._fill_own(want.demand, places)
            else:
                self._offer_places(want.origin, None, want.demand, places, 0)
        if self.gangs:
            self.gangs.reserve()

    def _wake_later(self) -> None:
        """When a running task is due, and its successor can be sent."""
        next_ns = None if self._ahead is None else self._ahead.next_ns()
        engine = self._homes.engine
        if next_ns is None or engine.now < self._wakes_ns <= next_ns:
            return
        self._wakes_ns = max(next_ns, engine.now + 1)
        engine.after(self._wakes_ns - engine.now, self.serve)

    @property
    def _own(self) -> Origin:
        return self._homes.origins[self.number]

    def _hold_several(self, demand: Demand, count: int) -> list[Place]:
        places: list[Place] = []
        while len(places) < count:
            hold = self._hold(demand)
            if hold is None:
                break
            places.append(hold)
        return places

    def _fill_own(self, demand: Demand, places: list[Place]) -> None:
        tasks = self._own.waiting.take(demand, len(places))
        for task, place in zip(tasks, places, strict=False):
            self.launch(task, place)
        for place in places[len(tasks) :]:
            self.release(place)
        self._own.withdraw_if_done()

    def _offer_places(
        self, origin: int, job: Job | None, demand: Demand, places: list[Place], short: int
    ) -> None:
        self._offer += 1
        if places:
            self._offers[self._offer] = (origin, places)
        there = self._homes.origins[origin]
        self._homes.links.tell(
            self.number,
            origin,
            there.offered,
            self.number,
            job,
            demand,
            places,
            self._offer,
            short,
            self.ledger.cores_free_milli,
        )

    # What origins tell it

    def requested(self, origin: int, job: Job, demand: Demand, tasks: list[Task]) -> None:
        rest = self.start(tasks)
        if rest and self.number in self._homes.beliefs.able(demand):
            self.evict_for(demand, job.priority, len(rest))
            self.add_want(Want(origin, demand, len(rest)), job.priority)
        there, free = self._homes.origins[origin], self.ledger.cores_free_milli
        given = (self.number, job, demand, rest, free)
        self._homes.links.tell(self.number, origin, there.answered, *given, tasks=rest)

    def asked(self, origin: int, job: Job, demand: Demand, count: int) -> None:
        places = self._hold_several(demand, count)
        short = count - len(places)
        if short:
            self.add_want(Want(origin, demand, short), job.priority)
        self._offer_places(origin, job, demand, places, short)

    def filled(self, offer: int, tasks: list[Task]) -> None:
        if offer not in self._offers:  # taken back: the origin was believed dead
            for task in tasks:
                self._homes.place(task.job, [task])
            return
        _, places = self._offers.pop(offer)
        for task, place in zip(tasks, places, strict=False):
            self.launch(task, place)
        for place in places[len(tasks) :]:
            self.release(place)
        if len(tasks) < len(places):
            self.serve()

    def withdrawn(self, origin: int) -> None:
        self._line.withdraw(origin)

    # Failures

    def origin_died(self, origin: int) -> None:
        self._line.withdraw(origin)
        for offer in [n for n, (whose, _) in self._offers.items() if whose == origin]:
            for place in self._offers.pop(offer)[1]:
                self.release(place)
        self.gangs.withdraw(origin)
        self.serve()

    def die(self) -> None:
        """What it knew of guests is gone; its servers have other homes by now."""
        self._line.clear()
        self._offers.clear()
        self.gangs.clear()
