"""Lanes for drivers whose work happens elsewhere: an attempt is a coroutine on the worker's loop.

Nothing of a task runs in the worker itself: it is data for a server, or a process that the
spawn helper starts.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from mycel.core.identifiers import AttemptId, LaneId
from mycel.drivers.python.interpreter_records import clock

from .interface import LONG_SECONDS, DriverListener, Finished, Run


class _Lane:
    def __init__(self) -> None:
        self.waiting: deque[Run] = deque()
        self.running: Run | None = None
        self.is_long = False


class CoroutineDriver:
    """A driver is made of this by what one attempt does."""

    def __init__(self, listener: DriverListener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[LaneId, _Lane] = {}
        self._tasks: dict[AttemptId, asyncio.Task[None]] = {}
        self._killed: set[AttemptId] = set()

    async def perform(self, lane: LaneId, run: Run) -> Finished:
        """One attempt. It is cancelled when its time is up or it is killed, and ends only when
        nothing of it is left."""
        raise NotImplementedError

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        state = self._lanes.setdefault(lane, _Lane())
        if state.is_long:
            attempts = [run.attempt for run in runs]
            self._loop.call_soon(self._listener.returned, lane, attempts)
            return
        state.waiting.extend(runs)
        if state.running is None:
            self._next(lane, state)

    def withdraw(self, attempts: list[AttemptId]) -> None:
        wanted = set(attempts)
        withdrawn: list[AttemptId] = []
        for state in self._lanes.values():
            withdrawn += [run.attempt for run in state.waiting if run.attempt in wanted]
            state.waiting = deque(run for run in state.waiting if run.attempt not in wanted)
        if withdrawn:
            self._loop.call_soon(self._listener.withdrawn, withdrawn)

    def kill(self, attempts: list[AttemptId]) -> None:
        self.withdraw(attempts)
        for attempt in attempts:
            task = self._tasks.get(attempt)
            if task is not None and attempt not in self._killed:
                self._killed.add(attempt)
                # Not before it has begun: then nobody would hear of its end.
                self._loop.call_soon(task.cancel)

    def close_lane(self, lane: LaneId) -> None:
        self._lanes.pop(lane, None)

    async def close(self) -> None:
        self.withdraw([run.attempt for lane in self._lanes.values() for run in lane.waiting])
        self.kill(list(self._tasks))
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    # One attempt

    def _next(self, lane: LaneId, state: _Lane) -> None:
        state.running = run = state.waiting.popleft() if state.waiting else None
        state.is_long = False
        if run is not None:
            task = self._loop.create_task(self._run(lane, state, run), name=f"task {run.task_id}")
            self._tasks[run.attempt] = task

    async def _run(self, lane: LaneId, state: _Lane, run: Run) -> None:
        started_at = clock()
        watch = self._loop.call_later(LONG_SECONDS, self._is_long, lane, state, run, started_at)
        try:
            finished = await self._finish(lane, run)
        finally:
            watch.cancel()
            self._tasks.pop(run.attempt, None)
            self._killed.discard(run.attempt)
        whole = msgspec.structs.replace(finished, started_at=started_at, ended_at=clock())
        self._listener.finished([whole])
        self._next(lane, state)

    def _is_long(self, lane: LaneId, state: _Lane, run: Run, started_at: float) -> None:
        state.is_long = True
        back = [one.attempt for one in state.waiting]
        state.waiting.clear()
        self._listener.started([(run.attempt, started_at)])
        if back:
            self._listener.returned(lane, back)

    async def _finish(self, lane: LaneId, run: Run) -> Finished:
        """Every way in which an attempt can end."""
        attempt = run.attempt
        try:
            async with asyncio.timeout(run.work.timeout_seconds):
                return await self.perform(lane, run)
        except TimeoutError:
            seconds = run.work.timeout_seconds
            return Finished(attempt, "timed_out", error=f"timed out after {seconds:g} s")
        except asyncio.CancelledError:
            if attempt not in self._killed:
                raise
            return Finished(attempt, "cancelled", error="cancelled")
        except Exception as error:  # noqa: BLE001 - the edge that owns the attempt: without an
            # end its lane would be lost, and whatever waits for it.
            told = {"message": f"task {run.task_id} met a fault of its driver", "exception": error}
            self._loop.call_exception_handler(told)
            text = f"a fault of the driver: {type(error).__name__}: {error}"
            return Finished(attempt, "failed", error=text, driver_fault=True)
