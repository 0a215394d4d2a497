"""Shapes of which tasks wait, in the order in which they get what is free.

    the highest priority first ─ then who holds the fewest slots ─ then who waits for longest

Whoever gets a slot goes behind its equals, so that equal shapes share what there is, and one quick
task does not wait behind a job of 100,000. Nothing is sorted: a shape moves between buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from mycel.core.scheduler.tasks.shape_queue import ShapeQueue

Bucket = dict[ShapeQueue, None]


class WaitingShapes:
    def __init__(self) -> None:
        self._buckets: dict[int, dict[int, Bucket]] = {}
        """By priority and slots held."""
        self._places: dict[ShapeQueue, tuple[int, int]] = {}
        """Where each stands; who was looked at in turn last comes last."""
        self._without_cores = 0
        """How many of them need none."""

    def may_fit(self, cpu_millis: int) -> bool:
        """Whether any may, into a worker with so much left."""
        return bool(self._places) and (cpu_millis > 0 or self._without_cores > 0)

    def __len__(self) -> int:
        return len(self._places)

    def update(self, queue: ShapeQueue) -> None:
        """After its tasks or its slots have changed."""
        place = (queue.shape.priority, queue.held_slots) if queue.waiting else None
        before = self._places.get(queue)
        if place == before:
            return
        if before is not None:
            self._remove(queue, *before)
        if place is not None:
            self._places[queue] = place
            self._without_cores += queue.cpu_millis == 0
            self._buckets.setdefault(place[0], {}).setdefault(place[1], {})[queue] = None

    def _remove(self, queue: ShapeQueue, priority: int, held: int) -> None:
        del self._places[queue]
        self._without_cores -= queue.cpu_millis == 0
        by_held = self._buckets[priority]
        del by_held[held][queue]
        if not by_held[held]:
            del by_held[held]
            if not by_held:
                del self._buckets[priority]

    def in_order(self) -> Iterator[ShapeQueue]:
        """Must not be changed meanwhile."""
        for priority in sorted(self._buckets, reverse=True):
            by_held = self._buckets[priority]
            for held in sorted(by_held):
                yield from by_held[held]

    def ahead_of(self, queue: ShapeQueue) -> Iterator[ShapeQueue]:
        """Those that should have a slot rather than this one, should it get one less."""
        mine = queue.shape.priority
        for priority in sorted(self._buckets, reverse=True):
            if priority < mine:
                return
            by_held = self._buckets[priority]
            for held in sorted(by_held):
                if priority == mine and held >= queue.held_slots:
                    return
                yield from by_held[held]

    def in_turn(self, count: int) -> list[ShapeQueue]:
        """Some of all that wait, others each time: whoever is never among the first in order is
        looked at here."""
        first = list(islice(self._places, count))
        for queue in first:
            self._places[queue] = self._places.pop(queue)
        return first
