"""Workers that are left out for a while: of a shape, or of all shapes of a user.

for want of room    until the worker has news, or one of its slots is free
for another reason  until the time is up
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mycel.core.matching.worker_sets import without
from mycel.core.model.work import Shape

if TYPE_CHECKING:
    from mycel.core.scheduler.records import Worker
    from mycel.core.scheduler.state import State

TIMER: Final = "ask"
Key = Shape | str
"""A shape, or a user."""


class Exclusions:
    def __init__(self, state: State) -> None:
        self._state = state
        self._masks: dict[Key, int] = {}
        self._lacking: dict[Shape, int] = {}
        """Of those, who has only no room."""

    def of(self, shape: Shape) -> int:
        """Who is left out, as a mask of places in the pool."""
        if not self._masks:
            return 0
        return self._masks.get(shape, 0) | self._masks.get(shape.user, 0)

    def refusing(self, shape: Shape) -> int:
        """Who does not take it for a reason that room does not mend."""
        left_out = self.of(shape)
        return left_out and without(left_out, self._lacking.get(shape, 0))

    def add(self, worker: Worker, key: Key, reason: str, seconds: float, now: float) -> None:
        if worker.member is None:
            return
        self._masks[key] = self._masks.get(key, 0) | 1 << worker.member.slot
        worker.excluded[key] = reason
        self._state.timers.set((TIMER, (worker.peer, key)), now + seconds)

    def add_now(self, worker: Worker, shape: Shape, reason: str, now: float) -> None:
        """It has no room; the next free slot of it is news."""
        self.add(worker, shape, reason, self._state.settings.ask_again_seconds, now)
        if worker.member is not None:
            worker.lacks_room.add(shape)
            self._lacking[shape] = self._lacking.get(shape, 0) | 1 << worker.member.slot

    def has_news(self, worker: Worker) -> None:
        if worker.lacks_room:
            for shape in list(worker.lacks_room):
                self.lift(worker, shape)

    def lift(self, worker: Worker, key: Key) -> None:
        if worker.excluded.pop(key, None) is None or worker.member is None:
            return
        if isinstance(key, Shape):
            worker.lacks_room.discard(key)
            lacking = without(self._lacking.get(key, 0), 1 << worker.member.slot)
            if lacking:
                self._lacking[key] = lacking
            else:
                self._lacking.pop(key, None)
        self._state.timers.cancel((TIMER, (worker.peer, key)))
        mask = self._masks[key] & ~(1 << worker.member.slot)
        if mask:
            self._masks[key] = mask
        else:
            del self._masks[key]
        self._state.has_room(worker)

    def gone(self, worker: Worker) -> None:
        """Its place in the pool may be another's soon."""
        for key in list(worker.excluded):
            self.lift(worker, key)
