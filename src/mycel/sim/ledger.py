"""What one scheduler believes to be free on the servers it places on.

A booking is made when a task is sent and given back when the end of the task is heard. So a ledger
never promises what a server does not have, and is late by one message at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from .entities import Demand, Resources, Server


class Hold(NamedTuple):
    """A booked place."""

    server: int
    demand: Demand
    gpus: tuple[int, ...]


class Ledger:
    def __init__(self, servers: Sequence[Server], members: Iterable[int]) -> None:
        self.members: Final = list(members)
        self.books: Final = {
            member: Resources(servers[member].resources.capacity) for member in self.members
        }
        self.down: Final[set[int]] = set()
        self.cores_free_milli = sum(book.cores_milli for book in self.books.values())
        self._cursor = 0

    @property
    def slots_free(self) -> int:
        """Whole cores on servers that are up."""
        lost = sum(self.books[member].cores_milli for member in self.down)
        return (self.cores_free_milli - lost) // 1000

    def next_fit(self, demand: Demand) -> int | None:
        """Goes on where the last task was placed: fast, and fills server after server."""
        count = len(self.members)
        if not count or self.cores_free_milli < demand.cores_milli:
            return None
        for _ in range(count):
            member = self.members[self._cursor]
            if member not in self.down and self.books[member].fits(demand):
                return member
            self._cursor = (self._cursor + 1) % count
        return None

    def hold(self, demand: Demand) -> Hold | None:
        member = self.next_fit(demand)
        if member is None:
            return None
        return self.book(member, demand, self.books[member].best_gpus(demand))

    def book(self, member: int, demand: Demand, gpus: tuple[int, ...]) -> Hold:
        self.books[member].take(demand, gpus)
        self.cores_free_milli -= demand.cores_milli
        return Hold(member, demand, gpus)

    def correct(self, member: int, free: Resources, booked: Iterable[Demand]) -> None:
        """The member has told what it has free. Of what was booked since, as much as fits counts:
        the rest was booked by mistake, and the member will refuse it."""
        book = self.books[member]
        before = book.cores_milli
        book.copy(free)
        for demand in booked:
            if book.fits(demand):
                book.take(demand, book.best_gpus(demand))
        self.cores_free_milli += book.cores_milli - before

    def release(self, hold: Hold) -> None:
        self.books[hold.server].give(hold.demand, hold.gpus)
        self.cores_free_milli += hold.demand.cores_milli

    # Members that move between ledgers

    def leave(self, member: int) -> Resources:
        """The member's book, with all that is booked in it."""
        self.members.remove(member)
        self._cursor = 0
        self.down.discard(member)
        book = self.books.pop(member)
        self.cores_free_milli -= book.cores_milli
        return book

    def join(self, member: int, book: Resources) -> None:
        self.members.append(member)
        self.books[member] = book
        self.cores_free_milli += book.cores_milli
