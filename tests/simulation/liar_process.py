"""A worker that does its own tasks honestly, and claims others: made-up attempts, and genuine ones
that it has copied from other workers, authenticators and all.

It knows more than any member can: all that its schedulers have, and all that the others were
given. Only the secret stays unknown to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mycel.core.authenticators import AUTHENTICATOR_BYTES
from mycel.core.effects import Effect, Send
from mycel.core.events import Event
from mycel.core.identifiers import AttemptId, JobNumber, LeaseId, PeerId, fenced
from mycel.core.messages import (
    CheckpointPart,
    CheckpointWanted,
    HeldAttempt,
    Outcome,
    Register,
    Results,
    WorkMessage,
)

from .processes import Checked, digest
from .scheduler_process import SchedulerProcess
from .worker_process import WorkerProcess

VALUE = b'"forged"'
TASKS_MAX = 12
"""Of so many tasks it makes something up each time."""
HAD_MAX = 3
LIES_PER_EVENT = 0.05


class Claim(msgspec.Struct, frozen=True):
    attempt: AttemptId
    job: JobNumber
    index: int
    authenticator: bytes

    def held(self) -> HeldAttempt:
        place = (self.attempt, self.job, self.index)
        return HeldAttempt(*place, LeaseId(1), 1, None, self.authenticator)

    def outcome(self) -> Outcome:
        place = (self.attempt, self.job, self.index)
        return Outcome(*place, "succeeded", VALUE, digest(VALUE), authenticator=self.authenticator)


class Lying(Checked):
    liar: LiarProcess

    def handle(self, event: Event, now: float, *, more: bool = False) -> list[Effect]:
        effects = super().handle(event, now, more=more)
        return self.liar.embellished(effects) if self.liar.lies else effects


class LiarProcess(WorkerProcess):
    def __init__(self, *everything: Any) -> None:
        super().__init__(*everything)
        self.lies = True
        self.had: list[Claim] = []
        """What it was given itself, the latest last: shown again for other tasks."""
        self.schedulers: list[SchedulerProcess] = []
        self.honest: list[WorkerProcess] = []

    def checked(self) -> Checked:
        made = Lying(self.machine, self._check, self.history, self.peer)
        made.liar = self
        return made

    def embellished(self, effects: list[Effect]) -> list[Effect]:
        told: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Register):
                effect = Send(effect.peer, self._more_than_it_has(effect.peer, effect.message))
            told.append(effect)
        if self.random.random() < LIES_PER_EVENT:
            for record in self.machine.schedulers.values():
                if record.is_welcome:
                    told += [Send(record.peer, message) for message in self._lies(record.peer)]
        return told

    def _more_than_it_has(self, scheduler: PeerId, register: Register) -> Register:
        claims = list(self._claims(scheduler))
        held = [one.held() for one in claims if self.random.random() < 0.5]
        outcomes = [one.outcome() for one in claims if self.random.random() < 0.5]
        return msgspec.structs.replace(
            register,
            attempts=[*register.attempts, *held],
            outcomes=[*register.outcomes, *outcomes],
        )

    def _lies(self, scheduler: PeerId) -> Iterator[WorkMessage]:
        for one in self._claims(scheduler):
            yield Results(0.0, [one.outcome()], [])
            yield CheckpointPart(one.attempt, 1, 0, len(VALUE), digest(VALUE), VALUE)
            yield CheckpointWanted(one.attempt, 0)

    def _claims(self, peer: PeerId) -> Iterator[Claim]:
        """None that the scheduler's tables have with this worker: it may say of those what it
        likes."""
        [scheduler] = [one for one in self.schedulers if one.peer == peer]
        if not scheduler.is_running:
            return
        known = scheduler.machine.state.workers.get(self.peer)
        believed = () if known is None else known.attempts
        self.had += _copied(self, peer)
        del self.had[:-HAD_MAX]
        yield from (one for one in self._all_claims(scheduler) if one.attempt not in believed)

    def _all_claims(self, scheduler: SchedulerProcess) -> Iterator[Claim]:
        for worker in self.honest:
            if worker.life:
                yield from _copied(worker, scheduler.peer)
        state = scheduler.machine.state
        tasks = [
            (job.number, index)
            for job in state.jobs.values()
            if job.state is None
            for index in range(job.count)
        ]
        for job, index in self.random.sample(tasks, min(len(tasks), TASKS_MAX)):
            boot = self.random.randint(1, max(1, state.boot))
            made_up = AttemptId(fenced(boot, self.random.randint(1, 1 << 30)))
            yield Claim(made_up, job, index, self.random.randbytes(AUTHENTICATOR_BYTES))
            for one in self.had:
                yield Claim(one.attempt, job, index, one.authenticator)


def _copied(worker: WorkerProcess, scheduler: PeerId) -> Iterator[Claim]:
    """What a worker has of this scheduler's, as it would show it."""
    record = worker.machine.schedulers.get(scheduler)
    if record is None:
        return
    for held in record.held.values():
        yield Claim(held.id, held.job, held.index, held.authenticator)
    for kept in record.outcomes.values():
        one = kept.outcome
        yield Claim(one.attempt, one.job, one.index, one.authenticator)
