"""What a worker tells its schedulers of its load.

A scheduler books by its own books, so that it has to be told only what others have booked beside
it, and when there is room again after it was refused for want of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mycel.core.matching import less
from mycel.core.messages import load_change
from mycel.core.model.resources import Free

from .records import SchedulerRecord

if TYPE_CHECKING:
    from .machine import WorkerMachine

TIMER: Final = "tell"


class LoadReports:
    def __init__(self, machine: WorkerMachine) -> None:
        self._machine = machine
        self.changed = False
        """Something was booked or given back, or the worker has opened or closed."""

    def room_for(self, record: SchedulerRecord) -> Free:
        """Free, or this scheduler's own. Idle lanes give way, and count as free."""
        machine = self._machine
        free = machine.ledger.total
        if len(machine.schedulers) == 1:
            return free
        for lanes in machine.lanes.values():
            if lanes.scheduler != record.peer:
                for lane in lanes.busy:
                    free = less(free, lane.booking)
        return free

    def told(self, record: SchedulerRecord, room: Free, now: float) -> None:
        record.told, record.told_usage = room, self._machine.usage
        record.told_closed_for = self._machine.closing.reason
        record.told_at = now

    def freed(self) -> None:
        """A lane is idle, or gone."""
        self.changed = True
        for record in self._machine.schedulers.values():
            record.has_room = record.waits_for_room

    def settle(self, now: float) -> None:
        """After every event."""
        if not self.changed:
            return
        self.changed = False
        self.tell(now)

    def tell(self, now: float) -> None:
        """The first change at once, what follows it within moments together; what others have
        booked more seldom."""
        machine = self._machine
        for record in machine.schedulers.values():
            record.is_behind = not record.is_welcome
            if not record.is_up or not record.is_welcome:
                continue
            room = self.room_for(record)
            is_news = (
                record.told is None
                or record.told_closed_for != machine.closing.reason
                or record.told_usage != machine.usage
                or record.has_room
            )
            if not is_news and record.told == room:
                continue
            wait = machine.settings.tell_seconds if is_news else machine.settings.share_seconds
            due = record.told_at + wait
            if now < due and not machine.closing.is_stopping:
                machine.watch(TIMER, record.peer, due)
                continue
            usage = None if machine.usage == record.told_usage else machine.usage
            reason = machine.closing.reason
            change = load_change(record.told, room, len(machine.held), reason, usage)
            self.told(record, room, now)
            record.waits_for_room = record.has_room = False
            machine.send(record.peer, change)

    def due(self, key: object, now: float) -> None:
        self.tell(now)
