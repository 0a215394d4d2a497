"""Workers that come, fall silent, go and come back.

Connection loss is not task loss: the worker goes on, and its registration runs until it ends. What
ends it early is certainty: nobody listens at the worker's direct address, or it has come back
under a later one. What it does not list then is lost.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.core.effects import Dial, Hangup, Part
from mycel.core.identifiers import AttemptId, JobNumber, PeerId, boot_of
from mycel.core.messages import (
    WIRE_VERSION,
    Described,
    HeldAttempt,
    Kill,
    Outcome,
    Register,
    Welcome,
)
from mycel.core.model.jobs import task_key
from mycel.core.scheduler.attempt_table import AttemptTable
from mycel.core.scheduler.records import Attempt, Worker
from mycel.core.scheduler.state import State
from mycel.core.scheduler.tasks.attempt_proofs import Authentication
from mycel.core.scheduler.tasks.attempts import Attempts
from mycel.core.scheduler.tasks.result_fetches import Fetches
from mycel.core.scheduler.trust.guard import Guard
from mycel.core.states import LeaseStep, WorkerState, WorkerStep

from .dialling import Calling
from .registrations import Registrations
from .slot_books import SlotBooks
from .worker_health import Measuring
from .worker_index import Roster

REFUSED_SECONDS: Final = 60.0
"""So much later a worker of another version may try again: one of the two may be upgraded."""
UNLINKED: Final = (WorkerState.AWAY, WorkerState.EXPECTED, WorkerState.CALLED)


class Presence:
    def __init__(
        self,
        state: State,
        table: AttemptTable,
        attempts: Attempts,
        fetches: Fetches,
        books: SlotBooks,
        registrations: Registrations,
        measuring: Measuring,
        calling: Calling,
        roster: Roster,
        authentication: Authentication,
        guard: Guard,
    ) -> None:
        self._guard = guard
        self._state = state
        self._authentication = authentication
        self._measuring = measuring
        self._attempts = attempts
        self._fetches = fetches
        self._table = table
        self._books = books
        self._registrations = registrations
        self._calling = calling
        self._roster = roster

    # Coming

    def registered(self, peer: PeerId, register: Register, arrived_at: float, now: float) -> None:
        state = self._state
        if register.version != WIRE_VERSION:
            reason = f"it speaks version {register.version}, this scheduler {WIRE_VERSION}"
            state.note("worker_refused", peer=peer, name=register.name, reason=reason)
            state.workers_refused += 1
            state.emit(Part(peer, REFUSED_SECONDS, reason))
            return
        if self._authentication.is_shut_out(peer, now):
            self._authentication.shut_out(peer)
            return
        forged = self._forged(peer, register, now)
        if forged:
            if self._authentication.refuse(peer, forged, now):
                state.send(peer, Kill(forged))  # next time it has others to show, or none
                self._authentication.shut_out(peer)
                return
            register = _without(register, forged)
        worker = state.workers.get(peer)
        if worker is None:
            worker = state.add_worker(peer, WorkerState.EXPECTED)
        new_boot = worker.boot not in (0, register.boot)
        self._describe(worker, register, now)
        self._calling.registered(worker, register, now)
        worker.step(WorkerStep.REGISTER)
        self._registrations.begin(worker, register.lease, arrived_at)
        worker.unaccepted.clear()
        self._roster.described(worker, now)
        self._books.forget_numbers(worker)
        worker.missed = 0
        worker.last_heard = arrived_at
        state.timers.cancel(("dial", peer))
        state.timers.cancel(("away", peer))
        kill = [*self._settle_attempts(worker, register, new_boot, now), *forged]
        offset = arrived_at - register.clock
        lease_seconds = state.settings.lease_seconds
        state.send(peer, Welcome(WIRE_VERSION, state.boot, lease_seconds, [], kill))
        self._adopt_outcomes(worker, register.outcomes, now)
        self._fetches.outcomes(worker, register.outcomes, offset, now)
        self._registrations.renew(worker, register.clock, arrived_at)
        self._roster.has_news(worker)
        state.tell("worker.joined", now, worker=peer, name=worker.name, boot=worker.boot)
        state.note("worker_registered", peer=peer, name=worker.name, boot=worker.boot)

    def _forged(self, peer: PeerId, register: Register, now: float) -> list[AttemptId]:
        """What was sent in this boot is known; the rest has to prove that it was sent."""
        worker = self._state.workers.get(peer)
        known = () if worker is None else worker.attempts
        shown: list[HeldAttempt | Outcome] = [*register.attempts, *register.outcomes]
        unknown = [one for one in shown if one.attempt not in known]
        return self._authentication.forged_of(peer, unknown, now) if unknown else []

    def _describe(self, worker: Worker, register: Register, now: float) -> None:
        worker.boot = register.boot
        worker.name = register.name
        worker.capabilities = register.capabilities
        self._books.set_room(worker, register.free)
        worker.addresses = register.addresses
        worker.software_version = register.software_version
        worker.accepting, worker.closed_for = not register.closed_for, register.closed_for
        worker.usage = register.usage
        worker.facts["capabilities"] = worker.facts["load"] = ("registered", now)

    def described(self, worker: Worker, message: Described, arrived_at: float, now: float) -> None:
        """It can do other things than before, or can be dialled elsewhere."""
        worker.addresses = message.addresses or worker.addresses
        has_changed = worker.capabilities != message.capabilities
        worker.capabilities = message.capabilities
        worker.facts["capabilities"] = ("registered", now)
        if not message.load_follows:
            self._books.set_room(worker, message.free)
            worker.facts["load"] = ("registered", now)
        if not has_changed:
            return
        self._roster.described(worker, now)
        self._roster.has_news(worker)
        models = ", ".join(message.capabilities.models)
        state = self._state
        state.tell("worker.described", now, worker=worker.peer, name=worker.name, models=models)
        state.note("worker_described", peer=worker.peer, name=worker.name, models=models)

    def _settle_attempts(
        self, worker: Worker, register: Register, new_boot: bool, now: float
    ) -> list[AttemptId]:
        """Reads the worker's list first, then ends what it does not list; returns what it
        should kill."""
        listed = {held.attempt for held in register.attempts}
        listed.update(outcome.attempt for outcome in register.outcomes)
        missing = [one for one in worker.attempts.values() if one.id not in listed]
        if new_boot:
            self.lose_all(missing, "its worker was restarted", now)
        else:
            for attempt in missing:
                self._attempts.give_back(attempt, now)
        return [
            held.attempt
            for held in register.attempts
            if not self._adopt(worker, held, register, now)
        ]

    def _adopt_outcomes(self, worker: Worker, outcomes: list[Outcome], now: float) -> None:
        """A result that waited for us counts unless something newer is under way."""
        for outcome in outcomes:
            if outcome.attempt not in worker.attempts:
                self._take_on(worker, outcome.attempt, outcome.job, outcome.index, now)

    def _adopt(self, worker: Worker, held: HeldAttempt, register: Register, now: float) -> bool:
        attempt = worker.attempts.get(held.attempt)
        if attempt is None:
            attempt = self._take_on(worker, held.attempt, held.job, held.index, now)
        if attempt is None:
            return False
        if held.started_at is not None and attempt.started_at is None:
            attempt.start(held.started_at + now - register.clock, now)
        return True

    def _take_on(
        self,
        worker: Worker,
        attempt_id: AttemptId,
        job_number: JobNumber,
        index: int,
        now: float,
    ) -> Attempt | None:
        """Makes a reported attempt of an earlier boot the task's current one, if nothing newer is
        known. Its authenticator was checked; of this boot's attempts those that count are in the
        tables already."""
        state = self._state
        if boot_of(attempt_id) >= state.boot:
            return None
        job = state.jobs.get(job_number)
        block = job.block_of(index) if job is not None else None
        if job is None or block is None or job.is_ended(block, index):
            return None
        if block.is_held_back or attempt_id in state.attempts:
            return None  # never sent to anybody, or another's
        key = task_key(job_number, index)
        if attempt_id <= state.highest_ended(key):
            return None
        current = state.current.get(key)
        if current is not None:
            if current.id >= attempt_id:
                return None
            self._attempts.supersede(current, now)
        elif not state.backoff.remove(key, block):
            taken = state.queue_of(block.group.shape).take_one(block, index)
            assert taken, "a task that is neither out nor ended must wait somewhere"
        slots = self._books.of(worker, state.queue_of(block.group.shape))
        return self._table.adopt(attempt_id, key, block, index, slots, now)

    # Signs of life

    def heard(self, worker: Worker, arrived_at: float) -> None:
        worker.last_heard = arrived_at
        if worker.missed:
            worker.missed = 0
            if worker.state is WorkerState.SUSPECT:
                worker.step(WorkerStep.HEAR)
                self._state.tell("worker.heard", arrived_at, worker=worker.peer, name=worker.name)
                self._roster.stands(worker)
                self._roster.has_news(worker)
                for slots in worker.book.shapes.values():
                    if slots.out:
                        self._state.touch(slots.queue)

    def silent(self, worker: Worker, seconds: float, now: float) -> None:
        if worker.state not in (WorkerState.HEALTHY, WorkerState.SUSPECT):
            return
        settings = self._state.settings
        if (
            not worker.attempts
            and seconds < settings.health_check_interval + settings.health_check_timeout
        ):
            return  # nothing depends on it now
        worker.missed += 1
        worker.step(WorkerStep.MISS)
        name, missed = worker.name, worker.missed
        self._state.tell("worker.silent", now, worker=worker.peer, name=name, missed=missed)
        self._roster.stands(worker)
        if worker.missed >= self._state.settings.max_consecutive_failures:
            self._state.emit(Hangup(worker.peer, "it was silent for too long"))
            self.died(worker, "it was silent for too long", now)

    # Going

    def link_down(self, worker: Worker, cause: str, now: float) -> None:
        if worker.state not in (WorkerState.HEALTHY, WorkerState.SUSPECT):
            return
        state = self._state
        worker.step(WorkerStep.LOSE_LINK)
        self._roster.stands(worker)
        state.linked.pop(worker.peer, None)
        worker.missed = 0
        self._fetches.link_lost(worker)
        worker.to_acknowledge.clear()  # what it still has, it will list again
        worker.unaccepted.clear()
        state.tell("worker.away", now, worker=worker.peer, name=worker.name, reason=cause)
        state.note("worker_away", peer=worker.peer, name=worker.name, cause=cause)
        if worker.attempts:
            self.dial(worker)
        state.timers.set(("away", worker.peer), now + state.settings.away_seconds)

    def dial(self, worker: Worker) -> None:
        self._state.emit(Dial(worker.peer, worker.addresses))

    def dial_again(self, worker: Worker, now: float) -> None:
        if worker.state in UNLINKED:
            self.dial(worker)

    def dial_failed(self, worker: Worker, refused: bool, now: float) -> None:
        if worker.state not in UNLINKED:
            return
        if refused:
            self.died(worker, "nobody listens at its address any more", now)
            return
        again = now + self._state.settings.health_check_timeout
        self._state.timers.set(("dial", worker.peer), again)

    def away_too_long(self, worker: Worker, now: float) -> None:
        """Without tasks nothing ties us to a worker that is gone."""
        if worker.state not in UNLINKED:
            return
        registration = worker.registration
        if registration is not None and worker.attempts:
            self._state.timers.set(("away", worker.peer), registration.ends_at)
        else:
            self.died(worker, "it did not come back", now)

    def died(self, worker: Worker, reason: str, now: float) -> None:
        state = self._state
        worker.step(WorkerStep.DIE)
        self._registrations.end(worker, LeaseStep.END, reason)
        self.lose_all(list(worker.attempts.values()), f"its worker is lost: {reason}", now)
        for kind in ("dial", "away", "accept"):
            state.timers.cancel((kind, worker.peer))
        self._measuring.gone(worker)
        self._roster.gone(worker)
        del state.workers[worker.peer]
        state.linked.pop(worker.peer, None)
        state.known.bury(worker.peer, worker.boot, state.unix(now))
        state.tell("worker.dead", now, worker=worker.peer, name=worker.name, reason=reason)
        self._calling.died(worker)
        state.note("worker_dead", peer=worker.peer, name=worker.name, reason=reason)

    # What is lost with it

    def expired(self, worker: Worker, now: float) -> None:
        """No reading of the worker's clock has come for a whole lease: its own registration
        ended before this one."""
        self._registrations.end(worker, LeaseStep.EXPIRE, "it was not renewed")
        reason = "its worker was silent until the lease ended"
        self.lose_all(list(worker.attempts.values()), reason, now)

    def lose_all(self, lost: list[Attempt], reason: str, now: float) -> None:
        """The first in each slot may have started, those behind them have not."""
        heads = {attempt.slots: max(1, len(attempt.slots.bookings)) for attempt in lost}
        if lost:
            self._guard.died(lost[0].worker, now)
        for attempt in lost:
            may_have_started = heads[attempt.slots] > 0
            heads[attempt.slots] -= 1
            counts = attempt.started_at is not None or may_have_started
            self._attempts.lose(attempt, counts, reason, now)


def _without(register: Register, attempts: list[AttemptId]) -> Register:
    forged = set(attempts)
    return msgspec.structs.replace(
        register,
        attempts=[one for one in register.attempts if one.attempt not in forged],
        outcomes=[one for one in register.outcomes if one.attempt not in forged],
    )
