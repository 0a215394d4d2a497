"""Why a worker takes no new work, and what becomes of what it has.

    open ── shut by a cause ──▶ shut ── the last cause is gone ──▶ open
                                 │
                                 └─ after the grace: what runs is handed back

A cause is such as `stop`, `drain`, `hours` or `owner`; while there is one, nothing is taken.
What has not started goes back to its scheduler at once; what runs goes on.
A cause may set a grace, after which what still runs is stopped and handed back: it counts as an
attempt nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from mycel.core.effects import Emptied, KillRuns
from mycel.core.events import Reopen, Shut
from mycel.core.identifiers import AttemptId, PeerId
from mycel.core.messages import Close, Closed
from mycel.core.ranges import bounded

if TYPE_CHECKING:
    from .machine import WorkerMachine

TIMER: Final = "hand_back"
STOP: Final = "stop"
DRAIN: Final = "drain"
SHUT_CHARACTERS_MAX: Final = 2000
"""It becomes part of what is said of tasks."""


class Closing:
    def __init__(self, machine: WorkerMachine) -> None:
        self._machine = machine
        self._causes: dict[str, str] = {}
        """With what is said of each to people, the first first."""
        self._graces: dict[str, float] = {}
        """When what runs is handed back, by cause."""

    @property
    def reason(self) -> str:
        """Empty while it is open."""
        return next(iter(self._causes.values()), "")

    @property
    def is_stopping(self) -> bool:
        return STOP in self._causes

    def shut(self, event: Shut, now: float) -> None:
        machine = self._machine
        event = msgspec.structs.replace(event, reason=bounded(event.reason, SHUT_CHARACTERS_MAX))
        self._causes[event.cause] = event.reason
        if event.hand_back_after_seconds is not None:
            self._graces[event.cause] = now + event.hand_back_after_seconds
            self._watch()
        for record in machine.schedulers.values():
            machine.running.hand_back_unstarted(record)
        machine.lane_table.close_idle()
        machine.loads.tell(now)
        self.look()

    def reopen(self, event: Reopen, now: float) -> None:
        self._graces.pop(event.cause, None)
        self._watch()
        if self._causes.pop(event.cause, None) is not None:
            self._machine.loads.tell(now)

    def asked(self, peer: PeerId, message: Close, now: float) -> None:
        """Somebody who may, by a scheduler: `mycel drain` and `mycel resume`."""
        objection = self._machine.authority.objection_to_admin(peer, message.token, now)
        if objection is None and message.on:
            reason = f"it was drained by {message.user or 'somebody'}"
            self.shut(Shut(DRAIN, reason, message.hand_back_after_seconds), now)
        elif objection is None:
            self.reopen(Reopen(DRAIN), now)
        answer = Closed(message.request, objection or "", not self._causes, self.reason)
        self._machine.send(peer, answer)

    def due(self, key: object, now: float) -> None:
        if not any(when <= now for when in self._graces.values()):
            self._watch()
            return
        self._graces = {cause: at for cause, at in self._graces.items() if at > now}
        self.hand_back()
        self._watch()

    def hand_back(self) -> None:
        """What has not started by now goes back as it is; what runs is killed first."""
        by_driver: dict[str, list[AttemptId]] = {}
        for held in self._machine.held.values():
            if held.lane is not None and not held.killed and not held.handed_back:
                held.handed_back = True
                by_driver.setdefault(held.lanes.shape.driver, []).append(held.run)
        for driver, runs in by_driver.items():
            self._machine.emit(KillRuns(driver, runs))

    def look(self) -> None:
        """Whether the last attempt has left a worker that is to stop."""
        if self.is_stopping and not self._machine.held:
            self._machine.emit(Emptied())

    def _watch(self) -> None:
        if self._graces:
            self._machine.watch(TIMER, None, min(self._graces.values()))
        else:
            self._machine.unwatch(TIMER, None)
