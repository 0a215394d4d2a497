"""Leases that this worker has granted: how they are renewed, shrink and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mycel.core import messages
from mycel.core.effects import CloseLane, WithdrawRuns
from mycel.core.identifiers import AttemptId, LeaseId, PeerId
from mycel.core.states import GrantState, GrantStep

from .records import Grant, Held, Lane

if TYPE_CHECKING:
    from .machine import WorkerMachine


class Grants:
    def __init__(self, machine: WorkerMachine) -> None:
        self._machine = machine

    def renew(self, peer: PeerId, message: messages.Renew, now: float) -> None:
        for lease in message.leases:
            grant = self.of(peer, lease)
            if grant is not None and grant.is_open:
                grant.step(GrantStep.RENEW)
                ends_at = message.echo + self._machine.settings.lease_seconds
                grant.ends_at = max(grant.ends_at, ends_at)
                self._machine.watch("grant", grant.id, grant.ends_at)

    def release(self, peer: PeerId, message: messages.Release, now: float) -> None:
        grant = self.of(peer, message.lease)
        if grant is None or not grant.is_open:
            return
        if message.slots >= grant.slots:
            self.end(grant, GrantStep.RELEASE, "it was released")
            return
        grant.step(GrantStep.SHRINK)
        idle = [lane for lane in grant.lanes if lane.held == 0]
        for lane in idle[: message.slots]:
            self._close(grant, lane)

    def of(self, peer: PeerId, lease: LeaseId) -> Grant | None:
        grant = self._machine.grants.get(lease)
        return grant if grant is not None and grant.scheduler == peer else None

    def end(self, grant: Grant, step: GrantStep, reason: str) -> None:
        """What runs goes on; what has not started is dropped."""
        grant.step(step)
        self._machine.unwatch("grant", grant.id)
        self._machine.unwatch("token", grant.id)
        dropped = self.drop_waiting(grant)
        self._machine.send(grant.scheduler, messages.LeaseOver(grant.id, reason))
        if dropped:
            self._machine.send(grant.scheduler, messages.Returned(dropped, []))
        in_lanes = [
            held.run
            for held in self._machine.held.values()
            if held.grant is grant and held.started_at is None
        ]
        if in_lanes:
            self._machine.emit(WithdrawRuns(grant.shape.driver, in_lanes))
        self.close_idle_lanes(grant)

    def drop_waiting(self, grant: Grant) -> list[AttemptId]:
        dropped = list(grant.waiting)
        grant.waiting.clear()
        for held in dropped:
            self.let_go(held)
        return [held.id for held in dropped]

    def let_go(self, held: Held) -> None:
        del self._machine.held[held.run]
        del self._machine.schedulers[held.grant.scheduler].held[held.id]

    def close_idle_lanes(self, grant: Grant) -> None:
        for lane in [lane for lane in grant.lanes if lane.held == 0]:
            self._close(grant, lane)
        if not grant.lanes and grant.state is GrantState.DRAINING:
            grant.step(GrantStep.EMPTY)
            del self._machine.grants[grant.id]

    def _close(self, grant: Grant, lane: Lane) -> None:
        grant.lanes.remove(lane)
        self._machine.ledger.give_back(lane.booking)
        self._machine.granting.changed = True
        if lane.opened:
            self._machine.emit(CloseLane(grant.shape.driver, lane.id))
