"""Outcomes that wait for their acknowledgement: in memory while the link is up, and on disk when
that takes long, when the link is lost, and at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mycel.core.effects import SpoolOutcomes, UnspoolOutcomes
from mycel.core.identifiers import AttemptId, PeerId
from mycel.core.messages import Acknowledge, Fetch, ResultPart

from .records import SchedulerRecord, Unacknowledged

if TYPE_CHECKING:
    from .machine import WorkerMachine


class Outcomes:
    def __init__(self, machine: WorkerMachine) -> None:
        self._machine = machine

    def acknowledged(self, peer: PeerId, message: Acknowledge, now: float) -> None:
        record = self._machine.schedulers.get(peer)
        if record is not None:
            self.drop(record, message.attempts)

    def fetched(self, peer: PeerId, message: Fetch, now: float) -> None:
        record = self._machine.schedulers.get(peer)
        found = None if record is None else record.outcomes.get(message.attempt)
        end = message.offset + message.length
        data = b"" if found is None else found.outcome.value[message.offset : end]
        self._machine.send(peer, ResultPart(message.attempt, message.offset, data))

    def drop(self, record: SchedulerRecord, attempts: Iterable[AttemptId]) -> None:
        spooled = []
        for attempt in attempts:
            waiting = record.outcomes.pop(attempt, None)
            if waiting is not None and waiting.spooled:
                spooled.append(attempt)
        if spooled:
            self._machine.emit(UnspoolOutcomes(record.peer, spooled))

    def keep_late(self, key: object, now: float) -> None:
        patience = self._machine.settings.spool_after_seconds
        oldest: float | None = None
        for record in self._machine.schedulers.values():
            late = []
            for one in record.outcomes.values():
                if one.spooled:
                    continue
                if one.since + patience <= now:
                    late.append(one)
                elif oldest is None or one.since < oldest:
                    oldest = one.since
            self.keep(record, late)
        if oldest is not None:
            self._machine.watch("spool", None, oldest + patience)

    def keep(self, record: SchedulerRecord, outcomes: Iterable[Unacknowledged]) -> None:
        fresh = [one for one in outcomes if not one.spooled]
        for one in fresh:
            one.spooled = True
        if fresh:
            self._machine.emit(SpoolOutcomes(record.peer, [one.outcome for one in fresh]))
