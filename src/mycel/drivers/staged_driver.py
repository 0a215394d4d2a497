"""A driver whose tasks need something before they start: files, packages, a container's image.

    submit ─▶ FileStaging ─▶ HeldRuns ─▶ the driver itself
    finished ◀─ FileStaging ◀─ HeldRuns ◀─┘

Each stage takes out what is not ready, or not done, and passes the rest on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mycel.core.identifiers import AttemptId, LaneId

from .file_staging import Files, FileStaging
from .interface import Driver, DriverListener, Finished, Run, Text
from .preparation import HeldRuns, Preparation


class StagedDriver:
    """`make` creates the driver itself, which reports to this one."""

    def __init__(
        self,
        make: Callable[[DriverListener], Driver],
        listener: DriverListener,
        *,
        preparations: Sequence[Preparation] = (),
        files: Files | None = None,
        timeout: Callable[[float | None], float | None] = lambda seconds: seconds,
    ) -> None:
        """`timeout`: how long a task may run, given what it asks for."""
        self._listener = listener
        self.inner = make(self)
        self._stages: list[FileStaging | HeldRuns] = []
        """The one nearest to the driver first."""
        self._held: list[HeldRuns] = []
        """Likewise."""
        self._files: FileStaging | None = None
        for count, preparation in enumerate(preparations):
            held = HeldRuns(self, preparation, partial(self._pass_on, count))
            self._held.append(held)
            self._stages.append(held)
        if files is not None:
            self._files = FileStaging(self, files, self._submit_with_files, timeout)
            self._stages.append(self._files)

    @property
    def name(self) -> str:
        return self.inner.name

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        if self._files is not None:
            runs = self._files.take(lane, runs)
        if runs:
            self._submit_with_files(lane, runs)

    def _submit_with_files(self, lane: LaneId, runs: list[Run]) -> None:
        self._pass_on(len(self._held), lane, runs)

    def _pass_on(self, count: int, lane: LaneId, runs: list[Run]) -> None:
        """Through the `count` preparations that are nearest to the driver."""
        for held in reversed(self._held[:count]):
            runs = held.take(lane, runs)
            if not runs:
                return
        self.inner.submit(lane, runs)

    def withdraw(self, attempts: list[AttemptId]) -> None:
        for stage in reversed(self._stages):
            attempts = stage.withdraw(attempts)
        if attempts:
            self.inner.withdraw(attempts)

    def kill(self, attempts: list[AttemptId]) -> None:
        for stage in reversed(self._stages):
            attempts = stage.kill(attempts)
        if attempts:
            self.inner.kill(attempts)

    def close_lane(self, lane: LaneId) -> None:
        self.inner.close_lane(lane)

    async def close(self) -> None:
        for stage in reversed(self._stages):
            await stage.stop()
        await self.inner.close()
        for stage in self._stages:
            await stage.close()

    # What the driver reports

    def started(self, attempts: list[tuple[AttemptId, float]]) -> None:
        self._listener.started(attempts)
        if self._files is not None:
            self._files.started(attempts)

    def streamed(self, attempt: AttemptId, piece: bytes) -> None:
        self._listener.streamed(attempt, piece)

    def wrote(self, texts: list[Text]) -> None:
        self._listener.wrote(texts)

    def finished(self, finished: list[Finished]) -> None:
        for stage in self._stages:
            finished = stage.finished(finished)
        if finished:
            self._listener.finished(finished)

    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None:
        for stage in self._stages:
            stage.release(attempts)
        self._listener.returned(lane, attempts)

    def withdrawn(self, attempts: list[AttemptId]) -> None:
        for stage in self._stages:
            stage.release(attempts)
        self._listener.withdrawn(attempts)
