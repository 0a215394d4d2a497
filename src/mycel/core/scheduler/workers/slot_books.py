"""A scheduler's own books of its workers: which slots are taken, by what.

    room      what a worker has for this scheduler: all but what others have booked
    booking   one slot of one shape; whoever is sent beyond those waits behind another

A slot is booked without asking. The worker's ledger decides all the same, and a refusal brings the
books up to date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mycel.core.matching import total_of
from mycel.core.model.resources import SLOTS_MAX, Booking, Free, Ledger
from mycel.core.model.work import Shape
from mycel.core.scheduler.tasks.shape_queue import ShapeQueue

if TYPE_CHECKING:
    from mycel.core.scheduler.records import Worker
    from mycel.core.scheduler.state import State

SHAPES_MAX: Final = 32
"""So many shapes of a worker are remembered: their numbers there, and how deep their lanes are.
The oldest go first. The worker remembers more."""


class Slots:
    """What one worker has of one shape."""

    __slots__ = ("bookings", "depth", "is_proven", "long", "number", "out", "queue", "worker")

    def __init__(self, worker: Worker, queue: ShapeQueue) -> None:
        self.worker = worker
        self.queue = queue
        self.number = 0
        """Under which it was introduced to the worker; 0 if it was not."""
        self.out = 0
        """Attempts that are there."""
        self.bookings: list[Booking] = []
        self.depth = 2
        """How many attempts each slot may have; before anything was measured, one waits."""
        self.long = 0
        """In so many slots something long runs."""
        self.is_proven = False
        """A task has succeeded, so the registration and the introduction have arrived."""

    @property
    def shape(self) -> Shape:
        return self.queue.shape

    def room(self, careful: bool) -> int:
        """How many more may be sent to wait behind others."""
        booked = len(self.bookings)
        long = min(self.long, booked)
        most = (booked - long) * self.depth + long
        if careful:
            most = min(most, booked + 1)
        return most - self.out


class Book:
    """One worker's."""

    def __init__(self) -> None:
        self.ledger: Ledger | None = None
        self.room = Free()
        self.shapes: dict[Shape, Slots] = {}
        """The longest unused first."""
        self.introduced = 0
        """The last number by which a shape was introduced."""
        self.out = 0
        """Attempts that are there, of all shapes."""

    @property
    def booked(self) -> int:
        return sum(len(slots.bookings) for slots in self.shapes.values())


class SlotBooks:
    def __init__(self, state: State) -> None:
        self._state = state

    # What a worker has

    def described(self, worker: Worker) -> None:
        """It can do other things than before: what is out is booked anew."""
        book = worker.book
        book.ledger = Ledger(worker.capabilities)
        book.ledger.rebase(book.room)
        for slots in book.shapes.values():
            self._count(slots, -len(slots.bookings))
            slots.bookings.clear()
            self._book_what_is_out(slots)
        self._tell(worker)

    def _book_what_is_out(self, slots: Slots) -> None:
        while len(slots.bookings) < slots.out and self._book(slots):
            pass

    def set_room(self, worker: Worker, room: Free) -> None:
        """The worker has said what there is for this scheduler."""
        book = worker.book
        book.room = room
        if book.ledger is not None:
            book.ledger.rebase(room)
            self._tell(worker)

    def forget_numbers(self, worker: Worker) -> None:
        """It has registered anew, and knows no shape by number."""
        worker.book.introduced = 0
        for slots in worker.book.shapes.values():
            slots.number = 0

    def gone(self, worker: Worker) -> None:
        assert not worker.attempts, "a worker goes and attempts are out there"
        worker.book = Book()

    # What is taken of it

    def of(self, worker: Worker, queue: ShapeQueue) -> Slots:
        shapes = worker.book.shapes
        slots = shapes.get(queue.shape)
        if slots is None:
            if len(shapes) >= SHAPES_MAX:
                unused = next((one for one in shapes.values() if not one.out), None)
                if unused is not None:
                    del shapes[unused.shape]
            slots = shapes[queue.shape] = Slots(worker, queue)
        slots.queue = queue
        return slots

    def take(self, slots: Slots) -> bool:
        """A slot for one more attempt; False if none is left."""
        if not self._book(slots):
            return False
        self._add(slots)
        self._tell(slots.worker)
        return True

    def take_behind(self, slots: Slots) -> None:
        """One more attempt waits behind others."""
        self._add(slots)

    def adopt(self, slots: Slots) -> None:
        """An attempt is there already, in a slot if there is one for it."""
        self._book(slots)
        self._add(slots)
        self._tell(slots.worker)

    def ended(self, slots: Slots) -> None:
        """An attempt has left: its slot goes to what waits behind it, or is free."""
        slots.out -= 1
        slots.worker.book.out -= 1
        slots.queue.live -= 1
        worker, ledger = slots.worker, slots.worker.book.ledger
        if slots.out < len(slots.bookings):
            assert ledger is not None
            ledger.give_back(slots.bookings.pop())
            slots.long = min(slots.long, len(slots.bookings))
            self._count(slots, -1)
            self._tell(worker)
            self._state.has_room(worker, slots.queue)
        self._state.touch(slots.queue)
        if slots.out:
            slots.queue.credit[slots] = None
        else:
            slots.queue.credit.pop(slots, None)

    def _book(self, slots: Slots) -> bool:
        ledger = slots.worker.book.ledger
        if ledger is None or len(slots.bookings) >= SLOTS_MAX:
            return False
        booking = ledger.book(slots.queue.need)
        if booking is None:
            return False
        slots.bookings.append(booking)
        self._count(slots, 1)
        return True

    def _add(self, slots: Slots) -> None:
        slots.out += 1
        slots.worker.book.out += 1
        slots.queue.live += 1
        slots.queue.credit[slots] = None

    def _count(self, slots: Slots, change: int) -> None:
        queue = slots.queue
        if change:
            queue.held_slots += change
            self._state.touch(queue)

    def _tell(self, worker: Worker) -> None:
        ledger, member = worker.book.ledger, worker.member
        if ledger is not None and member is not None:
            self._state.moved_workers[worker.peer] = worker


def room_of(worker: Worker) -> Free:
    """What is free of a worker by the books."""
    ledger = worker.book.ledger
    return total_of(worker.capabilities) if ledger is None else ledger.free
