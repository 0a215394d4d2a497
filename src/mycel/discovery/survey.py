"""A scheduler that nothing makes search still learns who is there.

Searches of the DHT begin with tasks that lack workers. Without gossip nobody would be known
before the first task: no list of workers, and a task with `require_satisfiable` would be refused
though it could run. So while few are known, the DHT is asked for anybody: after 1, 2, 4, …
seconds, then every `discovery_interval`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mycel.runtime.clock import Clock

FIRST_SECONDS: Final = 1.0
KNOWN_ENOUGH: Final = 64
"""With so many known workers, those that tasks lack are better searched for by what they need."""


class Survey:
    def __init__(
        self,
        clock: Clock,
        search_anybody: Callable[[], None],
        workers_known: Callable[[], int],
        interval_seconds: float,
    ) -> None:
        self._clock = clock
        self._search_anybody = search_anybody
        self._workers_known = workers_known
        self.interval_seconds = interval_seconds
        self._is_on = False

    def start(self) -> None:
        self._is_on = True
        self._again(FIRST_SECONDS)

    def stop(self) -> None:
        self._is_on = False

    def _again(self, delay: float) -> None:
        def due() -> None:
            if not self._is_on:
                return
            if self._workers_known() < KNOWN_ENOUGH:
                self._search_anybody()
            self._again(2 * delay)

        self._clock.call_at(self._clock.now() + min(delay, self.interval_seconds), due)
