"""Virtual time: a heap of callbacks, and the clocks of processes that can stop and die."""

from __future__ import annotations

import heapq
from collections.abc import Callable

EPOCH = 1_800_000_000.0


class VirtualClock:
    """The world's own time."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self.steps = 0

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (max(when, self._now), self._order, callback))

    def run_until(self, when: float, enough: Callable[[], bool] | None = None) -> None:
        """Runs everything that is due by then, in order; stops early when it is enough."""
        while self._heap and self._heap[0][0] <= when:
            self._now, _, callback = heapq.heappop(self._heap)
            self.steps += 1
            callback()
            if enough is not None and self.steps % 64 == 0 and enough():
                return
        self._now = max(self._now, when)


class ProcessClock:
    """One process's clock: it starts anywhere, stops when the process is frozen, and what is
    due for a dead process never happens."""

    def __init__(self, world: VirtualClock, offset: float) -> None:
        self._world = world
        self._offset = offset
        self._held: list[Callable[[], None]] = []
        self.is_alive = True
        self.is_frozen = False

    def now(self) -> float:
        return self._world.now() + self._offset

    def unix(self) -> float:
        return self._world.now() + EPOCH

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_at(0.0, callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        def due() -> None:
            if not self.is_alive:
                return
            if self.is_frozen:
                self._held.append(due)
            else:
                callback()

        # A hair later: the offset may round what is due to just before itself, for ever.
        self._world.call_at(when - self._offset + 1e-9, due)

    def thaw(self) -> None:
        self.is_frozen = False
        held, self._held = self._held, []
        for callback in held:
            self._world.call_at(0.0, callback)
