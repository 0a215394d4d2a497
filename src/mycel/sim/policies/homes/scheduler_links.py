"""Messages between schedulers. Both ends pay for a link that was cold, and are busy meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mycel.sim.entities import NS_PER_MS, Task
from mycel.sim.reference_engine import Engine

from .homes_options import HomesOptions, link_count


@dataclass(slots=True)
class Letter:
    source: int
    was_cold: bool
    handler: Callable[..., None]
    arguments: tuple[Any, ...]
    tasks: Sequence[Task]


class SchedulerLinks:
    def __init__(self, engine: Engine, options: HomesOptions, homes: int) -> None:
        self._engine: Final = engine
        self._first_place: Final = len(engine.servers)
        self._homes: Final = homes
        everyone = range(engine.schedulers)
        self._warm: Final[set[tuple[int, int]]] = set()
        # Links to homes only: others have no room to offer.
        self._count: Final = [0 for _ in everyone]
        self._enough: Final = link_count(options, engine.schedulers, homes)
        self._cold_ns: Final = round(options.cold_link_ms * NS_PER_MS)
        self._inboxes: Final[list[deque[Letter]]] = [deque() for _ in everyone]
        self._busy_until: Final = [0 for _ in everyone]

    def is_cold(self, source: int, target: int) -> bool:
        return (min(source, target), max(source, target)) not in self._warm

    def has_enough(self, scheduler: int) -> bool:
        return self._count[scheduler] >= self._enough

    def tell(
        self,
        source: int,
        target: int,
        handler: Callable[..., None],
        *arguments: Any,
        tasks: Sequence[Task] = (),
    ) -> None:
        was_cold = self.is_cold(source, target)
        if was_cold:
            self._warm.add((min(source, target), max(source, target)))
            self._count[source] += target < self._homes
            self._count[target] += source < self._homes
            busy = max(self._engine.now, self._busy_until[source])
            self._busy_until[source] = busy + self._cold_ns
        there = self._first_place + target
        self._engine.send(
            self._first_place + source,
            there,
            self._deliver,
            target,
            Letter(source, was_cold, handler, arguments, tasks),
            tasks=tasks,
            is_repeated=True,
            earliest_ns=self.earliest_ns(source, there),
        )

    def earliest_ns(self, source: int, place: int) -> int:
        """When a message that the scheduler sends now can be at the place."""
        delay = self._engine.network.delay_ns(self._first_place + source, place) or 0
        return max(self._engine.now, self._busy_until[source]) + delay

    def _deliver(self, target: int, letter: Letter) -> None:
        """Messages to a busy scheduler wait in its inbox, in the order of their arrival."""
        inbox = self._inboxes[target]
        inbox.append(letter)
        if len(inbox) == 1:
            self._read(target)

    def _read(self, target: int) -> None:
        now, inbox = self._engine.now, self._inboxes[target]
        while inbox and self._engine.is_place_up(self._first_place + target):
            letter = inbox[0]
            if self._busy_until[target] <= now and letter.was_cold and self._cold_ns:
                letter.was_cold = False
                self._busy_until[target] = now + self._cold_ns
            if self._busy_until[target] > now:
                self._engine.after(self._busy_until[target] - now, self._read, target)
                return
            inbox.popleft()
            letter.handler(*letter.arguments)

    def lose(self, scheduler: int) -> list[Letter]:
        """The scheduler has died: its links are cold again. Returns what it had not read."""
        for pair in [pair for pair in self._warm if scheduler in pair]:
            self._warm.discard(pair)
            other = pair[0] if pair[1] == scheduler else pair[1]
            self._count[other] -= scheduler < self._homes
        self._count[scheduler] = 0
        unread = list(self._inboxes[scheduler])
        self._inboxes[scheduler].clear()
        return unread
