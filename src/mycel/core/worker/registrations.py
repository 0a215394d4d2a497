"""This worker's registrations with schedulers: each is a lease of the whole worker.

It begins with `Register` and is renewed as a whole by echoes of this worker's own clock. When it
has ended, what runs goes on, what has not started goes back, and the next word of its scheduler
makes the worker register anew, under a later epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mycel.core import messages
from mycel.core.identifiers import LeaseId, PeerId, fenced
from mycel.core.states import GrantStep

from .records import Registration, SchedulerRecord

if TYPE_CHECKING:
    from .machine import WorkerMachine

TIMER: Final = "registration"


class Registrations:
    def __init__(self, machine: WorkerMachine, software_version: str) -> None:
        self._machine = machine
        self._software_version = software_version
        self._count = 0

    def register(self, record: SchedulerRecord, now: float, heard_by: str = "") -> None:
        """Tells a scheduler all that it has to know, and of all that is its own."""
        machine = self._machine
        registration = record.registration
        if registration is None or not registration.is_open:
            self._count += 1
            lease = LeaseId(fenced(machine.boot, self._count))
            ends_at = now + machine.settings.lease_seconds
            registration = record.registration = Registration(lease, ends_at)
            machine.watch(TIMER, record.peer, ends_at)
        record.shapes.clear()
        record.is_welcome = record.is_behind = False
        record.waits_for_room = record.has_room = False
        attempts = [
            messages.HeldAttempt(
                held.id,
                held.job,
                held.index,
                held.lease,
                held.number,
                held.started_at,
                held.authenticator,
            )
            for held in record.held.values()
            if not held.killed
        ]
        limit = machine.settings.inline_bytes_max
        told = [messages.announced(one.outcome, limit) for one in record.outcomes.values()]
        parts = list(messages.in_parts(told))
        later = [outcome for part in parts[1:] for outcome in part]
        attempts += [
            messages.HeldAttempt(
                one.attempt,
                one.job,
                one.index,
                LeaseId(0),
                one.number,
                one.started_at,
                one.authenticator,
            )
            for one in later
        ]
        register = messages.Register(
            version=messages.WIRE_VERSION,
            boot=machine.boot,
            clock=now,
            name=machine.name,
            capabilities=machine.capabilities,
            free=machine.loads.room_for(record),
            addresses=machine.addresses,
            leases=[],
            attempts=attempts,
            outcomes=parts[0] if parts else [],
            software_version=self._software_version,
            heard_by=heard_by,
            closed_for=machine.closing.reason,
            usage=machine.usage,
            lease=registration.id,
        )
        machine.loads.told(record, register.free, now)
        machine.send(record.peer, register)
        for part in parts[1:]:
            machine.send(record.peer, messages.Results(now, part, []))

    def renew(self, peer: PeerId, message: messages.Renew, now: float) -> None:
        record = self._machine.scheduler(peer)
        registration = record.registration
        if registration is None or not registration.is_open or registration.id != message.lease:
            self.again(record, now)
            return
        registration.step(GrantStep.RENEW)
        ends_at = message.echo + self._machine.settings.lease_seconds
        registration.ends_at = max(registration.ends_at, ends_at)
        self._machine.watch(TIMER, peer, registration.ends_at)

    def again(self, record: SchedulerRecord, now: float) -> None:
        """Its scheduler speaks, and of another registration than ours. One that was just sent
        and has not been answered is not sent again."""
        if record.is_up and record.is_welcome:
            self.register(record, now)

    def expired(self, key: object, now: float) -> None:
        record = self._machine.schedulers.get(key)  # type: ignore[call-overload]
        if record is None or record.registration is None or not record.registration.is_open:
            return
        record.registration.step(GrantStep.EXPIRE)
        self._machine.running.hand_back_unstarted(record)
        self._machine.forget_if_done(record)

    def end(self, record: SchedulerRecord) -> None:
        """Nothing is between the two any more."""
        if record.registration is not None and record.registration.is_open:
            record.registration.step(GrantStep.END)
        self._machine.unwatch(TIMER, record.peer)
