"""What tasks report of themselves while they run: progress, and checkpoints for a later try.

Only an attempt that is its task's current one is heard. Checkpoints are kept by the role, in
files: the machine says whose they are.
"""

from __future__ import annotations

from mycel.core.effects import KeepCheckpoint, ReadCheckpoint
from mycel.core.identifiers import AttemptId
from mycel.core.messages import CheckpointPart, CheckpointWanted, Progressed
from mycel.core.model import reports
from mycel.core.scheduler.records import Attempt, Worker
from mycel.core.scheduler.state import State


class Reporting:
    def __init__(self, state: State) -> None:
        self._state = state

    def progressed(
        self, worker: Worker, message: Progressed, arrived_at: float, now: float
    ) -> None:
        for attempt_id, raw in message.reports:
            attempt = self._current(worker, attempt_id)
            if attempt is None:
                continue
            attempt.progress = raw
            if self._state.listening:
                report = reports.decode(raw)
                self._state.tell(
                    "task.progress",
                    now,
                    attempt.job,
                    attempt.index,
                    worker.peer,
                    attempt=attempt.number,
                    progress=report.progress,
                    message=report.message,
                    metrics=report.metrics,
                )

    def checkpointed(
        self, worker: Worker, message: CheckpointPart, arrived_at: float, now: float
    ) -> None:
        attempt = self._current(worker, message.attempt)
        if attempt is not None:
            attempt.was_long = True  # its end has to take the checkpoint along
            place = (attempt.job.id, attempt.index)
            self._state.emit(KeepCheckpoint(worker.peer, *place, message))

    def wanted(
        self, worker: Worker, message: CheckpointWanted, arrived_at: float, now: float
    ) -> None:
        attempt = self._current(worker, message.attempt)
        if attempt is not None:
            place = (attempt.job.id, attempt.index, attempt.id)
            self._state.emit(ReadCheckpoint(worker.peer, *place, message.offset))

    def _current(self, worker: Worker, attempt_id: AttemptId) -> Attempt | None:
        attempt = worker.attempts.get(attempt_id)
        if attempt is None or self._state.current.get(attempt.key) is not attempt:
            return None
        return attempt
