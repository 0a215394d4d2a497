"""What attempts say of themselves, on its way to their schedulers, and the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mycel.core.effects import CheckpointAnswered
from mycel.core.events import RunCheckpointed, RunsProgressed, RunWantsCheckpoint
from mycel.core.identifiers import AttemptId, PeerId
from mycel.core.messages import CheckpointPart, CheckpointTaken, CheckpointWanted, Progressed

from .records import Held

if TYPE_CHECKING:
    from .machine import WorkerMachine


class Reporting:
    def __init__(self, machine: WorkerMachine) -> None:
        self._machine = machine

    def progressed(self, event: RunsProgressed, now: float) -> None:
        by_scheduler: dict[PeerId, list[tuple[AttemptId, bytes]]] = {}
        for run, report in event.reports:
            held = self._live(run)
            if held is not None:
                by_scheduler.setdefault(held.scheduler, []).append((held.id, report))
        for peer, reports in by_scheduler.items():
            self._machine.send(peer, Progressed(reports))

    def checkpointed(self, event: RunCheckpointed, now: float) -> None:
        held = self._live(event.part.attempt)
        if held is not None:
            part = msgspec.structs.replace(event.part, attempt=held.id)
            self._machine.send(held.scheduler, part)

    def wanted(self, event: RunWantsCheckpoint, now: float) -> None:
        held = self._live(event.attempt)
        if held is not None:
            self._machine.send(held.scheduler, CheckpointWanted(held.id, event.offset))

    def answered(self, peer: PeerId, message: CheckpointPart | CheckpointTaken, now: float) -> None:
        record = self._machine.schedulers.get(peer)
        held = None if record is None else record.held.get(message.attempt)
        if held is not None:
            self._machine.emit(CheckpointAnswered(held.run, message))

    def _live(self, run: AttemptId) -> Held | None:
        held = self._machine.held.get(run)
        return None if held is None or held.killed else held
