"""A driver for tasks with files, around any other: what they need is there before they start,
and what they leave is safe before they have succeeded.

    submit ─▶ preparing ─▶ the driver itself ─▶ collecting ─▶ finished
                  │                │                └─ failed: what it declared is not there
                  │                └─ returned, withdrawn, failed
                  └─ withdrawn; failed: what it needs cannot be had

Tasks without files pass through untouched. A lane is not held up: whatever is ready first runs
first, and what comes behind is prepared meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from mycel.blobs.errors import BadTree
from mycel.core.files import BadFile, mentions_files
from mycel.core.identifiers import AttemptId, LaneId
from mycel.node.clock import boot_seconds

from .interface import Driver, DriverListener, Finished, Run, Text


class Files(Protocol):
    """`blobs.errands.TaskFiles`."""

    async def prepare(self, run: Run) -> Run: ...
    async def collect(self, run: Run) -> None: ...
    async def discard(self, run: Run) -> None: ...


class _Filed:
    """A task with files, on its way."""

    def __init__(self, lane: LaneId, run: Run) -> None:
        self.lane = lane
        self.run = run
        self.preparing: asyncio.Task[None] | None = None
        self.collecting: asyncio.Task[None] | None = None
        self.ended: Finished | None = None
        """How it ended, while its outputs are collected."""


class Filing:
    """A `Driver`, and the listener of the one inside."""

    def __init__(self, listener: DriverListener, files: Files) -> None:
        self._listener = listener
        self._files = files
        self._inner: Driver | None = None
        self._filed: dict[AttemptId, _Filed] = {}
        self._discarding: set[asyncio.Task[None]] = set()

    def around(self, inner: Driver) -> Filing:
        self._inner = inner
        return self

    @property
    def inner(self) -> Driver:
        assert self._inner is not None, "there is no driver inside yet"
        return self._inner

    @property
    def name(self) -> str:
        return self.inner.name

    # The driver

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        filed = [run for run in runs if _has_files(run)]
        if not filed:
            self.inner.submit(lane, runs)
            return
        plain = [run for run in runs if not _has_files(run)]
        if plain:
            self.inner.submit(lane, plain)
        for run in filed:
            one = self._filed[run.attempt] = _Filed(lane, run)
            one.preparing = asyncio.create_task(self._prepare(one))

    def withdraw(self, attempts: list[AttemptId]) -> None:
        rest = [attempt for attempt in attempts if not self._stop_preparing(attempt)]
        if rest:
            self.inner.withdraw(rest)

    def kill(self, attempts: list[AttemptId]) -> None:
        rest = []
        for attempt in attempts:
            one = self._filed.get(attempt)
            if one is not None and one.collecting is not None:
                # Soon, not now: a task that has not begun would end without a word.
                asyncio.get_running_loop().call_soon(one.collecting.cancel)
            elif not self._stop_preparing(attempt):
                rest.append(attempt)
        if rest:
            self.inner.kill(rest)

    def close_lane(self, lane: LaneId) -> None:
        self.inner.close_lane(lane)

    async def close(self) -> None:
        for attempt in list(self._filed):
            self._stop_preparing(attempt)
        await self.inner.close()
        await asyncio.sleep(0)
        tasks = [one.collecting for one in self._filed.values() if one.collecting is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._discarding, return_exceptions=True)

    def _stop_preparing(self, attempt: AttemptId) -> bool:
        one = self._filed.get(attempt)
        if one is None or one.preparing is None:
            return False
        one.preparing.cancel()
        self._forget(attempt)
        asyncio.get_running_loop().call_soon(self._listener.withdrawn, [attempt])
        return True

    # Before and after

    async def _prepare(self, one: _Filed) -> None:
        attempt = one.run.attempt
        try:
            ready = await self._files.prepare(one.run)
        except (BadFile, BadTree) as error:
            self._fail(attempt, str(error), its_own=True)
        except Exception as error:  # noqa: BLE001 - the edge that owns it: else it never ends
            self._fail(attempt, f"its inputs cannot be had: {error}", its_own=False)
        else:
            one.run, one.preparing = ready, None
            self.inner.submit(one.lane, [ready])

    def _fail(self, attempt: AttemptId, error: str, *, its_own: bool) -> None:
        self._forget(attempt)
        now = boot_seconds()
        fault = not its_own
        self._listener.finished(
            [
                Finished(
                    attempt,
                    "failed",
                    error=error,
                    driver_fault=fault,
                    started_at=now,
                    ended_at=now,
                )
            ]
        )

    async def _collect(self, one: _Filed, ended: Finished) -> None:
        try:
            await self._files.collect(one.run)
        except asyncio.CancelledError:
            ended = msgspec.structs.replace(ended, state="cancelled", value=b"", error="cancelled")
        except BadTree as error:
            ended = msgspec.structs.replace(ended, state="failed", value=b"", error=str(error))
        except Exception as error:  # noqa: BLE001 - likewise
            ended = msgspec.structs.replace(
                ended,
                state="failed",
                value=b"",
                error=f"its outputs cannot be brought home: {error}",
                driver_fault=True,
            )
        self._forget(one.run.attempt)
        self._listener.finished([ended])

    def _forget(self, attempt: AttemptId) -> None:
        one = self._filed.pop(attempt, None)
        if one is not None:
            task = asyncio.create_task(self._discard(one))
            self._discarding.add(task)
            task.add_done_callback(self._discarding.discard)

    async def _discard(self, one: _Filed) -> None:
        if one.preparing is not None:
            await asyncio.wait([one.preparing])
        await self._files.discard(one.run)

    # What the driver inside tells

    def started(self, attempts: list[tuple[AttemptId, float]]) -> None:
        self._listener.started(attempts)

    def streamed(self, attempt: AttemptId, piece: bytes) -> None:
        self._listener.streamed(attempt, piece)

    def wrote(self, texts: list[Text]) -> None:
        self._listener.wrote(texts)

    def finished(self, finished: list[Finished]) -> None:
        if not self._filed:
            self._listener.finished(finished)
            return
        through = []
        for ended in finished:
            one = self._filed.get(ended.attempt)
            if one is not None and ended.state == "succeeded" and one.run.work.outputs:
                one.ended = ended
                one.collecting = asyncio.create_task(self._collect(one, ended))
            else:
                self._forget(ended.attempt)
                through.append(ended)
        if through:
            self._listener.finished(through)

    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None:
        for attempt in attempts:
            self._forget(attempt)
        self._listener.returned(lane, attempts)

    def withdrawn(self, attempts: list[AttemptId]) -> None:
        for attempt in attempts:
            self._forget(attempt)
        self._listener.withdrawn(attempts)


def _has_files(run: Run) -> bool:
    work = run.work
    return bool(work.inputs or work.outputs or mentions_files(run.arguments))
