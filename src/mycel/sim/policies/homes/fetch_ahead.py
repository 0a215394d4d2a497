"""Tasks sent to a server before it has room, so that its slots do not wait for messages.

Without it a slot is empty for a round trip between two tasks. Where that is more than a twentieth
of the usual task, a home sends the successor of a task that should end within the next round trip.
It expects a task to take as long as usual. A task that is late gets no successor: it may be long.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from mycel.sim.entities import Demand, Task
from mycel.sim.ledger import Hold
from mycel.sim.reference_engine import Engine

WORTHWHILE_SHARE: Final = 20
REMEMBERED: Final = 32
"""The usual length is a mean over about so many tasks."""


@dataclass(slots=True, eq=False)
class AheadPlace:
    """The successor's right to a slot whose task should end soon."""

    server: int
    demand: Demand
    task: Task | None = None
    """Sent to the server."""
    hold: Hold | None = None
    """Once the slot is known to be free, and nobody was sent: an ordinary place."""
    is_gone: bool = False
    """The server has another home by now."""


class FetchAhead:
    """Of one home."""

    def __init__(self, engine: Engine, place: int) -> None:
        self._engine: Final = engine
        self._place: Final = place
        self._usual_ns = 0.0
        self._due: list[tuple[int, int, int, int]] = []
        """When a task should end; a number; the task; its server."""
        self._number = 0
        self._running: Final[set[int]] = set()
        self._behind: Final[dict[int, list[AheadPlace]]] = {}
        """By server, in the order in which they were given."""

    def _round_trip_ns(self, server: int) -> int:
        return 2 * (self._engine.network.delay_ns(self._place, server) or 0)

    def find(self, demand: Demand) -> AheadPlace | None:
        now = self._engine.now
        while self._due:
            end_ns, _, task, server = self._due[0]
            round_trip_ns = self._round_trip_ns(server)
            if end_ns > now + round_trip_ns:
                return None
            heapq.heappop(self._due)
            is_late = end_ns + round_trip_ns < now
            if task in self._running and not is_late and self._is_worthwhile(round_trip_ns):
                place = AheadPlace(server, demand)
                self._behind.setdefault(server, []).append(place)
                return place
        return None

    def next_ns(self) -> int | None:
        """When to look again."""
        if not self._due:
            return None
        end_ns, _, _, server = self._due[0]
        round_trip_ns = self._round_trip_ns(server)
        return end_ns - round_trip_ns if self._is_worthwhile(round_trip_ns) else None

    def _is_worthwhile(self, round_trip_ns: int) -> bool:
        return round_trip_ns * WORTHWHILE_SHARE > self._usual_ns

    def started(self, task: Task, server: int, start_ns: int) -> None:
        """By the home's reckoning."""
        self._running.add(task.index)
        if self._usual_ns:
            self._number += 1
            end_ns = start_ns + round(self._usual_ns)
            heapq.heappush(self._due, (end_ns, self._number, task.index, server))

    def give_back(self, place: AheadPlace) -> None:
        if not place.is_gone:
            self._behind[place.server].remove(place)

    def ended(self, task: Task, server: int) -> AheadPlace | None:
        """Whose the slot is now. The server starts the first that was sent by itself."""
        self._running.discard(task.index)
        length_ns = task.duration_ns
        self._usual_ns += (length_ns - self._usual_ns) / REMEMBERED if self._usual_ns else length_ns
        behind = self._behind.get(server)
        if not behind:
            return None
        place = next((one for one in behind if one.task is not None), behind[0])
        behind.remove(place)
        return place

    def forget(self, task: Task, server: int) -> bool:
        """The task is lost. Whether it had been sent ahead."""
        self._running.discard(task.index)
        behind = self._behind.get(server, [])
        for place in behind:
            if place.task is task:
                behind.remove(place)
                return True
        return False

    def leave(self, server: int) -> list[Task]:
        """The server gets another home, or has died: what was sent ahead to it."""
        places = self._behind.pop(server, [])
        for place in places:
            place.is_gone = True
        return [place.task for place in places if place.task is not None]

    def take_over(self, server: int, tasks: list[Task]) -> None:
        """What another home had sent ahead to a server that is now ours."""
        places = [AheadPlace(server, task.demand, task) for task in tasks]
        self._behind.setdefault(server, []).extend(places)
