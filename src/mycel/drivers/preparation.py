"""Runs that wait for something to be there: an environment to be built, an image to be fetched.

    submit ─▶ held ──there──▶ the driver ─▶ …
                └──not to be had──▶ finished, failed

What is needed is obtained once for all runs that wait for it, and lanes that need something
else, or nothing, go on meanwhile. A run that is held has not started: its time-out does not
run, and it can be withdrawn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from mycel.core.identifiers import AttemptId, LaneId
from mycel.drivers.python.interpreter_records import clock

from .interface import Driver, DriverListener, Finished, Run, Text

ABANDONED_SECONDS: Final = 2.0
"""So long after the last run that waits for something was withdrawn it is still obtained: another
may be on its way."""


class Unavailable(Exception):
    """The message is for the task's user."""

    def __init__(self, reason: str, output: bytes = b"", *, driver_fault: bool = False) -> None:
        super().__init__(reason)
        self.output = output
        self.driver_fault = driver_fault
        """Another worker, or the same one later, may have more luck."""


class Preparation(Protocol):
    def need_of(self, run: Run) -> str:
        """A name for what a run needs; empty if it needs nothing."""
        ...

    def applied(self, run: Run) -> Run | None:
        """The run with what it needs, if that is there. It is in use from then on, …"""
        ...

    def released(self, need: str) -> None:
        """… until that run has ended."""
        ...

    async def obtain(self, run: Run) -> None:
        """Raises `Unavailable`. Cancelled, it stops what it has begun, unless others wait."""
        ...

    async def close(self) -> None: ...


class PreparingDriver:
    """`make` creates the driver that runs what is ready; it reports to this one."""

    def __init__(
        self,
        make: Callable[[DriverListener], Driver],
        listener: DriverListener,
        preparer: Preparation,
    ) -> None:
        self._listener = listener
        self._preparer = preparer
        self._loop = asyncio.get_running_loop()
        self._held: dict[LaneId, deque[Run]] = {}
        self._obtaining: dict[str, asyncio.Task[None]] = {}
        self._needs: dict[AttemptId, str] = {}
        """Of runs that the driver has."""
        self._closing = False
        self.inner = make(self)

    @property
    def name(self) -> str:
        return self.inner.name

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        held = self._held.get(lane)
        if held is None:
            need_of = self._preparer.need_of
            if not any(need_of(run) for run in runs):
                self.inner.submit(lane, runs)
                return
            held = self._held[lane] = deque()
        held.extend(runs)
        self._pass_on(lane)

    def withdraw(self, attempts: list[AttemptId]) -> None:
        others = self._withdraw_held(attempts)
        if others:
            self.inner.withdraw(others)

    def kill(self, attempts: list[AttemptId]) -> None:
        others = self._withdraw_held(attempts)
        if others:
            self.inner.kill(others)

    def close_lane(self, lane: LaneId) -> None:
        self.inner.close_lane(lane)

    async def close(self) -> None:
        self._closing = True
        held = [run.attempt for held in self._held.values() for run in held]
        self._held.clear()
        if held:
            self._listener.withdrawn(held)
        under_way = list(self._obtaining.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self.inner.close()
        await self._preparer.close()

    # What the driver tells

    def started(self, attempts: list[tuple[AttemptId, float]]) -> None:
        self._listener.started(attempts)

    def streamed(self, attempt: AttemptId, piece: bytes) -> None:
        self._listener.streamed(attempt, piece)

    def wrote(self, texts: list[Text]) -> None:
        self._listener.wrote(texts)

    def finished(self, finished: list[Finished]) -> None:
        if self._needs:
            self._let_go(one.attempt for one in finished)
        self._listener.finished(finished)

    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None:
        self._let_go(attempts)
        self._listener.returned(lane, attempts)

    def withdrawn(self, attempts: list[AttemptId]) -> None:
        self._let_go(attempts)
        self._listener.withdrawn(attempts)

    def _let_go(self, attempts: Iterable[AttemptId]) -> None:
        for attempt in attempts:
            need = self._needs.pop(attempt, None)
            if need is not None:
                self._preparer.released(need)

    # Held runs

    def _pass_on(self, lane: LaneId) -> None:
        held = self._held[lane]
        ready: list[Run] = []
        while held and not self._closing:
            run = held[0]
            need = self._preparer.need_of(run)
            applied = self._preparer.applied(run) if need else run
            if applied is None:
                self._obtain(need, run)
                break
            held.popleft()
            if need:
                self._needs[run.attempt] = need
            ready.append(applied)
        if not held:
            del self._held[lane]
        if ready:
            self.inner.submit(lane, ready)

    def _obtain(self, need: str, run: Run) -> None:
        if need not in self._obtaining:
            self._obtaining[need] = self._loop.create_task(self._obtain_once(need, run))

    async def _obtain_once(self, need: str, run: Run) -> None:
        try:
            await self._preparer.obtain(run)
        except Unavailable as reason:
            self._fail(need, reason)
        finally:
            del self._obtaining[need]
            # Cancelled too: somebody may have come who wants it again.
            self._loop.call_soon(self._pass_on_all)

    def _fail(self, need: str, reason: Unavailable) -> None:
        now = clock()
        failed: list[Finished] = []
        for lane, held in list(self._held.items()):
            kept: deque[Run] = deque()
            for run in held:
                if self._preparer.need_of(run) != need:
                    kept.append(run)
                    continue
                failed.append(
                    Finished(
                        run.attempt,
                        "failed",
                        error=str(reason),
                        driver_fault=reason.driver_fault,
                        stderr=reason.output,
                        started_at=now,
                        ended_at=now,
                    )
                )
            self._keep(lane, kept)
        if failed:
            self._listener.finished(failed)

    def _stop_obtaining(self) -> None:
        """What nobody waits for any more."""
        needs = {self._preparer.need_of(run) for held in self._held.values() for run in held}
        for need, task in self._obtaining.items():
            if need not in needs:
                task.cancel()

    def _pass_on_all(self) -> None:
        for lane in list(self._held):
            if lane in self._held:
                self._pass_on(lane)

    def _keep(self, lane: LaneId, held: deque[Run]) -> None:
        if held:
            self._held[lane] = held
        else:
            del self._held[lane]

    def _withdraw_held(self, attempts: list[AttemptId]) -> list[AttemptId]:
        """Withdraws those that are held; the others come back."""
        wanted = set(attempts)
        found: list[AttemptId] = []
        for lane, held in list(self._held.items()):
            theirs = [run.attempt for run in held if run.attempt in wanted]
            if theirs:
                found += theirs
                self._keep(lane, deque(run for run in held if run.attempt not in wanted))
        if found:
            self._loop.call_soon(self._listener.withdrawn, found)
            self._loop.call_soon(self._pass_on_all)
            self._loop.call_later(ABANDONED_SECONDS, self._stop_obtaining)
            wanted.difference_update(found)
        return [attempt for attempt in attempts if attempt in wanted]
