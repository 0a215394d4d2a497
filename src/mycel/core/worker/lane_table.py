"""The lanes of this worker: booked from its ledger when an attempt needs one, kept warm while
they are idle, and given up when something else needs their room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mycel.core.effects import CloseLane
from mycel.core.identifiers import LaneId
from mycel.core.model.prices import hourly_rate, share_taken
from mycel.core.model.resources import SLOTS_MAX
from mycel.core.model.work import reserved

from .records import Lane, ShapeLanes

if TYPE_CHECKING:
    from .machine import WorkerMachine

TIMER: Final = "idle"


class LaneTable:
    def __init__(self, machine: WorkerMachine) -> None:
        self._machine = machine
        self._count = 0
        self._idle: dict[LaneId, tuple[ShapeLanes, Lane]] = {}
        """The longest idle first."""

    def free_lane(self, lanes: ShapeLanes) -> Lane | None:
        """One without work, of those that the shape has or of the room that is left; the caller
        gives it work at once."""
        found = next((one for one in reversed(lanes.lanes) if one.id in self._idle), None)
        if found is None:
            found = self._book(lanes)
        if found is not None:
            self._idle.pop(found.id, None)
        return found

    def _book(self, lanes: ShapeLanes) -> Lane | None:
        machine = self._machine
        need = reserved(lanes.shape)
        if len(lanes.lanes) >= SLOTS_MAX:
            return None
        booking = machine.ledger.book(need)
        while booking is None and self._idle:
            self.close(*next(iter(self._idle.values())))
            booking = machine.ledger.book(need)
        if booking is None:
            return None
        self._count += 1
        taken = share_taken(machine.ledger.total, machine.ledger.free)
        rate = hourly_rate(machine.tariff, need, taken) if machine.tariff.has_rates else 0.0
        lane = Lane(LaneId(self._count), booking, rate)
        lanes.lanes.append(lane)
        machine.loads.changed = True
        return lane

    def left(self, lanes: ShapeLanes, lane: Lane, now: float) -> None:
        """An attempt has left it. An idle lane of a worker that takes nothing is of no use."""
        lane.held -= 1
        if lane.held:
            return
        lane.is_long = False
        if self._machine.closing.reason or lanes.objection is not None:
            self.close(lanes, lane)
            return
        lane.idle_since = now
        if not self._idle:
            self._machine.watch(TIMER, None, now + self._machine.settings.idle_lane_seconds)
        self._idle[lane.id] = (lanes, lane)
        self._machine.loads.freed()

    def close(self, lanes: ShapeLanes, lane: Lane) -> None:
        assert not lane.held, "a lane is closed in which something runs"
        self._idle.pop(lane.id, None)
        lanes.lanes.remove(lane)
        self._machine.ledger.give_back(lane.booking)
        self._machine.loads.freed()
        if lane.opened:
            self._machine.emit(CloseLane(lanes.shape.driver, lane.id))

    def close_idle(self, of: ShapeLanes | None = None) -> None:
        for lanes, lane in list(self._idle.values()):
            if of is None or lanes is of:
                self.close(lanes, lane)

    def due(self, key: object, now: float) -> None:
        limit = self._machine.settings.idle_lane_seconds
        for lanes, lane in list(self._idle.values()):
            if lane.idle_since + limit > now:
                self._machine.watch(TIMER, None, lane.idle_since + limit)
                return
            self.close(lanes, lane)
