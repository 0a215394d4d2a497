"""What a worker's tasks report of themselves: thinned out, cut into pieces, and sent again.

Of progress only the latest counts, and a scheduler hears of it twice a second at the most. A
checkpoint goes to the scheduler piece by piece; a newer one replaces it on its way. What is not
answered is sent again: a link may have been lost in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mycel.core.effects import CheckpointAnswered
from mycel.core.events import Event, RunCheckpointed, RunsProgressed, RunWantsCheckpoint
from mycel.core.identifiers import AttemptId
from mycel.core.messages import CheckpointPart
from mycel.runtime.clock import Clock
from mycel.store.checkpoints import PART_BYTES

PROGRESS_SECONDS: Final = 0.5
AGAIN_SECONDS: Final = 5.0
"""An unanswered piece is sent again after so long."""

Kept = Callable[[bool], None]
"""Is told whether the scheduler has the checkpoint, or that a newer one took its place."""
Restored = Callable[[bytes | None], None]


class _Sending:
    def __init__(self, version: int, data: bytes, digest: bytes) -> None:
        self.version = version
        self.data = data
        self.digest = digest
        self.offset = 0
        self.kept: list[Kept] = []


class _Fetching:
    def __init__(self) -> None:
        self.data = b""
        self.restored: list[Restored] = []


class ReportRelay:
    def __init__(
        self, clock: Clock, post: Callable[[Event], None], digest: Callable[[bytes], bytes]
    ) -> None:
        self._clock = clock
        self._post = post
        self._digest = digest
        self._progress: dict[AttemptId, bytes] = {}
        self._is_due = False
        self._versions: dict[AttemptId, int] = {}
        self._sending: dict[AttemptId, _Sending] = {}
        self._fetching: dict[AttemptId, _Fetching] = {}

    @property
    def is_busy(self) -> bool:
        """Whether the end of a run has to be told here."""
        return bool(self._versions or self._progress or self._fetching)

    def progressed(self, run: AttemptId, report: bytes) -> None:
        self._progress[run] = report
        if not self._is_due:
            self._is_due = True
            self._tell_progress()
            self._clock.call_at(self._clock.now() + PROGRESS_SECONDS, self._due)

    def _due(self) -> None:
        self._is_due = bool(self._progress)
        if self._progress:
            self._tell_progress()
            self._clock.call_at(self._clock.now() + PROGRESS_SECONDS, self._due)

    def _tell_progress(self) -> None:
        reports, self._progress = self._progress, {}
        self._post(RunsProgressed(list(reports.items())))

    def checkpoint(self, run: AttemptId, data: bytes, kept: Kept | None = None) -> None:
        before = self._sending.get(run)
        version = self._versions[run] = self._versions.get(run, 0) + 1
        sending = self._sending[run] = _Sending(version, data, self._digest(data))
        if kept is not None:
            sending.kept.append(kept)
        if before is not None:
            for waiting in before.kept:
                waiting(False)
        self._send(run, sending)

    def restore(self, run: AttemptId, restored: Restored) -> None:
        fetching = self._fetching.get(run)
        if fetching is not None:
            fetching.restored.append(restored)
            return
        fetching = self._fetching[run] = _Fetching()
        fetching.restored.append(restored)
        self._fetch(run, fetching)

    def answered(self, effect: CheckpointAnswered) -> None:
        run, message = effect.run, effect.message
        if isinstance(message, CheckpointPart):
            self._fetched(run, message)
            return
        sending = self._sending.get(run)
        if sending is None or sending.version != message.version:
            return
        if message.is_kept:
            del self._sending[run]
            for kept in sending.kept:
                kept(True)
        elif message.upto != sending.offset:  # else it could not be taken: later again
            sending.offset = message.upto
            self._send(run, sending)

    def ended(self, run: AttemptId) -> None:
        report = self._progress.pop(run, None)
        if report is not None:  # what it said last stays with it
            self._post(RunsProgressed([(run, report)]))
        self._versions.pop(run, None)
        sending, fetching = self._sending.pop(run, None), self._fetching.pop(run, None)
        for kept in sending.kept if sending is not None else ():
            kept(False)
        for restored in fetching.restored if fetching is not None else ():
            restored(None)

    def _send(self, run: AttemptId, sending: _Sending) -> None:
        offset = sending.offset
        piece = sending.data[offset : offset + PART_BYTES]
        size = len(sending.data)
        part = CheckpointPart(run, sending.version, offset, size, sending.digest, piece)
        self._post(RunCheckpointed(part))

        def again() -> None:
            if self._sending.get(run) is sending and sending.offset == offset:
                self._send(run, sending)

        self._clock.call_at(self._clock.now() + AGAIN_SECONDS, again)

    def _fetch(self, run: AttemptId, fetching: _Fetching) -> None:
        offset = len(fetching.data)
        self._post(RunWantsCheckpoint(run, offset))

        def again() -> None:
            if self._fetching.get(run) is fetching and len(fetching.data) == offset:
                self._fetch(run, fetching)

        self._clock.call_at(self._clock.now() + AGAIN_SECONDS, again)

    def _fetched(self, run: AttemptId, part: CheckpointPart) -> None:
        fetching = self._fetching.get(run)
        if fetching is None or part.offset != len(fetching.data):
            return
        fetching.data += part.data
        if len(fetching.data) < part.size and part.data:
            self._fetch(run, fetching)
            return
        del self._fetching[run]
        whole = fetching.data if part.size else None
        if whole is not None and self._digest(whole) != part.digest:
            whole = None
        for restored in fetching.restored:
            restored(whole)
