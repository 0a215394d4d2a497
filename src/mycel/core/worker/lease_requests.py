"""How a worker answers requests for leases.

It grants at once what fits. What does not fit now is collected for at most 20 ms and ranked by
priority, while the holders of leases in the way are told that they are wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mycel.core.identifiers import LaneId, LeaseId, PeerId, fenced
from mycel.core.matching import obstacle, slots_that_fit
from mycel.core.messages import Offer, Request, Wanted, load_change
from mycel.core.model.prices import cost, hourly_rate, share_taken
from mycel.core.model.resources import SLOTS_MAX
from mycel.core.model.work import reserved
from mycel.core.ranges import REASON_CHARACTERS_MAX, bounded
from mycel.core.rights import Rights

from .records import Grant, Lane, OpenRequest

if TYPE_CHECKING:
    from .machine import WorkerMachine


class Granting:
    def __init__(self, machine: WorkerMachine) -> None:
        self._machine = machine
        self._open: list[OpenRequest] = []
        self._leases = 0
        self._lanes = 0
        self._told_at = -1.0e9
        self.changed = False
        """What is free has changed since it was last told."""

    def requested(self, peer: PeerId, request: Request, now: float) -> None:
        machine = self._machine
        if machine.closing.reason:
            self._refuse(peer, request, machine.closing.reason)
            return
        reason = obstacle(request.shape, machine.capabilities)
        if reason is not None:
            self._refuse(peer, request, reason)
            return
        rights = machine.authority.judge(peer, request, now)
        if isinstance(rights, str):
            self._refuse(peer, request, rights)
            return
        if not self._try(peer, request, rights, now):
            answer_by = now + machine.settings.collect_seconds
            self._open.append(OpenRequest(peer, request, rights, answer_by))
            machine.watch("collect", None, self._open[0].answer_by)
            self._tell_wanted(peer, request)

    def settle(self, now: float) -> None:
        """After every event: what has become free goes to those who wait, and is told."""
        if not self.changed:
            return
        self._open.sort(key=lambda one: (-one.request.shape.priority, one.answer_by))
        self._open = [one for one in self._open if not self._try_open(one, now)]
        self.changed = False
        self.tell_load(now)

    def answer_late(self, now: float) -> None:
        late = [one for one in self._open if one.answer_by <= now]
        self._open = [one for one in self._open if one.answer_by > now]
        for one in late:
            eta_seconds = self._eta_seconds()
            self._refuse(one.scheduler, one.request, "it has no room now", eta_seconds)
        if self._open:
            due = min(one.answer_by for one in self._open)
            self._machine.watch("collect", None, due)

    def refuse_all(self, reason: str) -> None:
        refused, self._open = self._open, []
        for one in refused:
            self._refuse(one.scheduler, one.request, reason)

    def forget(self, peer: PeerId) -> None:
        self._open = [one for one in self._open if one.scheduler != peer]

    def _try_open(self, one: OpenRequest, now: float) -> bool:
        """Whether it needs to wait no more. Its token may have been revoked meanwhile."""
        lapse = self._machine.authority.lapse(one.rights, now)
        if lapse is not None:
            self._refuse(one.scheduler, one.request, lapse)
            return True
        return self._try(one.scheduler, one.request, one.rights, now)

    def _try(self, peer: PeerId, request: Request, rights: Rights, now: float) -> bool:
        machine = self._machine
        lanes: list[Lane] = []
        while len(lanes) < min(request.slots, SLOTS_MAX):
            booking = machine.ledger.book(reserved(request.shape))
            if booking is None:
                break
            self._lanes += 1
            lanes.append(Lane(LaneId(self._lanes), booking))
        if not lanes:
            return False
        self._leases += 1
        lease = LeaseId(fenced(machine.boot, self._leases))
        ends_at = now + machine.settings.lease_seconds
        grant = Grant(lease, peer, request.shape, lanes, ends_at)
        taken = share_taken(machine.ledger.total, machine.ledger.free)
        grant.rate = hourly_rate(machine.tariff, reserved(request.shape), taken)
        machine.grants[lease] = grant
        machine.watch("grant", lease, ends_at)
        machine.authority.stands_on(grant, rights, now)
        self.changed = True
        window = grant.window(machine.settings)
        machine.send(
            peer,
            Offer(
                request.request,
                True,
                lease=lease,
                cost=cost(machine.tariff.floor, grant.rate, request.expected_seconds),
                slots=len(lanes),
                window=window,
                clock=now,
                capacity=self._capacity(request),
                floor=machine.tariff.floor,
                rate=grant.rate,
            ),
        )
        return True

    def _refuse(
        self, peer: PeerId, request: Request, reason: str, eta_seconds: float = 0.0
    ) -> None:
        floor = self._machine.tariff.floor
        told = bounded(reason, REASON_CHARACTERS_MAX)  # it may name what the request named
        self._machine.send(peer, Offer(request.request, False, told, eta_seconds, floor))

    def _capacity(self, request: Request) -> int:
        machine = self._machine
        need = reserved(request.shape)
        return slots_that_fit(need, machine.capabilities, machine.ledger.free)

    def _eta_seconds(self) -> float:
        """When a lane may be free: as soon as the quickest kind of task here usually ends."""
        usual = (grant.mean_seconds for grant in self._machine.grants.values())
        return min((seconds for seconds in usual if seconds is not None), default=0.0)

    def _tell_wanted(self, peer: PeerId, request: Request) -> None:
        leases: dict[PeerId, list[LeaseId]] = {}
        for grant in self._machine.grants.values():
            same = grant.scheduler == peer and grant.shape == request.shape
            if grant.is_open and not same:
                leases.setdefault(grant.scheduler, []).append(grant.id)
        for holder, (lease, *others) in leases.items():
            ours = holder == peer
            wanted = Wanted(lease, request.slots, request.shape.priority, ours, tuple(others))
            self._machine.send(holder, wanted)

    def tell_load(self, now: float) -> None:
        """What has changed, to each scheduler: the first change at once, what follows it within
        moments together."""
        machine = self._machine
        due = self._told_at + machine.settings.tell_seconds
        if now < due and not machine.closing.is_stopping:
            machine.watch("tell", None, due)
            return
        self._told_at = now
        free, closed_for = machine.ledger.free, machine.closing.reason
        for record in machine.schedulers.values():
            record.is_behind = not record.is_welcome
            if record.is_up and record.is_welcome:
                usage = None if machine.usage == record.told_usage else machine.usage
                change = load_change(record.told, free, len(machine.held), closed_for, usage)
                record.told, record.told_usage = free, machine.usage
                machine.send(record.peer, change)
