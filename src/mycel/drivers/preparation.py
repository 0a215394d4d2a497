"""Runs that wait until what they need is there: an environment is built, or an image fetched.

    submit ─▶ held ──there──▶ the driver ─▶ …
                └──unavailable──▶ finished, failed

All runs that wait for the same thing share one preparation. Lanes that need something else, or
nothing, go on meanwhile. A held run has not started: its time-out does not run, and it can be
withdrawn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from mycel.core.identifiers import AttemptId, LaneId
from mycel.drivers.python.interpreter_records import clock

from .interface import DriverListener, Finished, Run

ABANDONED_SECONDS: Final = 2.0
"""How long to go on preparing what no run waits for any more: another run may be on its way."""

Submit = Callable[[LaneId, list[Run]], None]


class Unavailable(Exception):
    """The message is for the task's user."""

    def __init__(self, reason: str, output: bytes = b"", *, driver_fault: bool = False) -> None:
        super().__init__(reason)
        self.output = output
        self.driver_fault = driver_fault
        """Another worker, or this one later, may succeed."""


class Preparation(Protocol):
    def need_of(self, run: Run) -> str:
        """A name for what a run needs; empty if it needs nothing."""
        ...

    def applied(self, run: Run) -> Run | None:
        """The run with what it needs, if that is there. It counts as used from then on, …"""
        ...

    def released(self, need: str) -> None:
        """… until that run has ended."""
        ...

    async def obtain(self, run: Run) -> None:
        """Raises `Unavailable`. Cancelled, it stops what it began, unless others wait for it."""
        ...

    async def close(self) -> None: ...


class HeldRuns:
    """A stage of `StagedDriver`: `submit` gets the runs that have what they need."""

    def __init__(self, events: DriverListener, preparation: Preparation, submit: Submit) -> None:
        self._events = events
        self._preparation = preparation
        self._submit = submit
        self._loop = asyncio.get_running_loop()
        self._held: dict[LaneId, deque[Run]] = {}
        self._obtaining: dict[str, asyncio.Task[None]] = {}
        self._needs: dict[AttemptId, str] = {}
        """What the runs that have left this stage use, until they end."""
        self._closing = False

    def take(self, lane: LaneId, runs: list[Run]) -> list[Run]:
        """Keeps the runs that need something, and those behind them; returns the others."""
        held = self._held.get(lane)
        if held is None:
            need_of = self._preparation.need_of
            if not any(need_of(run) for run in runs):
                return runs
            held = self._held[lane] = deque()
        held.extend(runs)
        self._pass_on(lane)
        return []

    def withdraw(self, attempts: list[AttemptId]) -> list[AttemptId]:
        """Withdraws those that are held, and returns the others."""
        wanted = set(attempts)
        found: list[AttemptId] = []
        for lane, held in list(self._held.items()):
            theirs = [run.attempt for run in held if run.attempt in wanted]
            if theirs:
                found += theirs
                self._keep(lane, deque(run for run in held if run.attempt not in wanted))
        if found:
            self._loop.call_soon(self._events.withdrawn, found)
            self._loop.call_soon(self._pass_on_all)
            self._loop.call_later(ABANDONED_SECONDS, self._stop_obtaining)
            wanted.difference_update(found)
        return [attempt for attempt in attempts if attempt in wanted]

    kill = withdraw

    def finished(self, finished: list[Finished]) -> list[Finished]:
        if self._needs:
            self.release(one.attempt for one in finished)
        return finished

    def release(self, attempts: Iterable[AttemptId]) -> None:
        for attempt in attempts:
            need = self._needs.pop(attempt, None)
            if need is not None:
                self._preparation.released(need)

    async def stop(self) -> None:
        self._closing = True
        held = [run.attempt for held in self._held.values() for run in held]
        self._held.clear()
        if held:
            self._events.withdrawn(held)
        under_way = list(self._obtaining.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def close(self) -> None:
        await self._preparation.close()

    def _pass_on(self, lane: LaneId) -> None:
        held = self._held[lane]
        ready: list[Run] = []
        while held and not self._closing:
            run = held[0]
            need = self._preparation.need_of(run)
            applied = self._preparation.applied(run) if need else run
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
            self._submit(lane, ready)

    def _obtain(self, need: str, run: Run) -> None:
        if need not in self._obtaining:
            self._obtaining[need] = self._loop.create_task(self._obtain_once(need, run))

    async def _obtain_once(self, need: str, run: Run) -> None:
        try:
            await self._preparation.obtain(run)
        except Unavailable as reason:
            self._fail(need, reason)
        finally:
            del self._obtaining[need]
            # Also after a cancellation: a new run may want it again.
            self._loop.call_soon(self._pass_on_all)

    def _fail(self, need: str, reason: Unavailable) -> None:
        now = clock()
        failed: list[Finished] = []
        for lane, held in list(self._held.items()):
            kept: deque[Run] = deque()
            for run in held:
                if self._preparation.need_of(run) != need:
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
            self._events.finished(failed)

    def _stop_obtaining(self) -> None:
        """Cancels what no run waits for any more."""
        needs = {self._preparation.need_of(run) for held in self._held.values() for run in held}
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
