"""The in-memory driver: the same promises in virtual time, with no process at all.

How long a run takes and how it ends comes from outside; everything else is as in the real
drivers: lanes run one after another, a long head is told of and gives back what waits, a kill
takes a while. `die` is SIGKILL of the worker: from then on nothing happens and nothing is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

import msgspec

from mycel.core.identifiers import AttemptId, LaneId
from mycel.drivers.interface import LONG_SECONDS, DriverListener, Finished, FinishedState, Run, Text


class VirtualClock(Protocol):
    def now(self) -> float: ...
    def call_at(self, when: float, callback: Callable[[], None]) -> object: ...


class _Lane:
    def __init__(self) -> None:
        self.waiting: deque[Run] = deque()
        self.running: _Running | None = None


class _Running:
    def __init__(self, lane: LaneId, run: Run, started_at: float) -> None:
        self.lane = lane
        self.run = run
        self.started_at = started_at
        self.is_long = False
        self.stopped_as: FinishedState | None = None


class MemoryDriver:
    """`duration` says how long a run takes, `outcome` how it ends when nothing stops it; of
    the latter's record, attempt and times are filled in here."""

    def __init__(
        self,
        clock: VirtualClock,
        listener: DriverListener,
        random: Random,
        duration: Callable[[Run], float],
        outcome: Callable[[Run], Finished] | None = None,
        *,
        name: str = "memory",
        kill_seconds_max: float = 0.002,
        output: Callable[[Run], bytes] | None = None,
    ) -> None:
        """`output` is what a run that takes long has written by then."""
        self._clock = clock
        self._listener = listener
        self._random = random
        self._duration = duration
        self._outcome = outcome or _succeeded
        self._name = name
        self._kill_seconds_max = kill_seconds_max
        self._output = output or _silent
        self._lanes: dict[LaneId, _Lane] = {}
        self._running: dict[AttemptId, _Running] = {}
        self._dead = False

    @property
    def name(self) -> str:
        return self._name

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        if self._dead:
            return
        state = self._lanes.setdefault(lane, _Lane())
        if state.running is not None and state.running.is_long:
            attempts = [run.attempt for run in runs]
            self._soon(lambda: self._listener.returned(lane, attempts))
            return
        was_idle = state.running is None and not state.waiting
        state.waiting.extend(runs)
        if was_idle:
            self._soon(lambda: self._start_next(lane, state))

    def withdraw(self, attempts: list[AttemptId]) -> None:
        wanted = set(attempts) - self._running.keys()
        withdrawn: list[AttemptId] = []
        for state in self._lanes.values() if wanted and not self._dead else ():
            found = [run.attempt for run in state.waiting if run.attempt in wanted]
            if found:
                state.waiting = deque(r for r in state.waiting if r.attempt not in wanted)
                withdrawn += found
        if withdrawn:
            self._soon(lambda: self._listener.withdrawn(withdrawn))

    def kill(self, attempts: list[AttemptId]) -> None:
        self.withdraw(attempts)
        for attempt in attempts:
            running = self._running.get(attempt)
            if running is not None:
                self._stop(running, "cancelled")

    def close_lane(self, lane: LaneId) -> None:
        state = self._lanes.get(lane)
        if state is not None and state.running is None and not state.waiting:
            del self._lanes[lane]

    async def close(self) -> None:
        """In virtual time nothing can be waited for: what runs ends here and now."""
        waiting = [run.attempt for lane in self._lanes.values() for run in lane.waiting]
        running = list(self._running.values())
        was_dead, self._dead = self._dead, True
        if not was_dead and waiting:
            self._listener.withdrawn(waiting)
        if not was_dead and running:
            self._listener.finished([self._stopped(one, "cancelled") for one in running])

    def die(self) -> None:
        """The worker's process is killed: silence."""
        self._dead = True
        self._lanes.clear()
        self._running.clear()

    def _soon(self, callback: Callable[[], None]) -> None:
        self._at(self._clock.now(), callback)

    def _at(self, when: float, callback: Callable[[], None]) -> None:
        def unless_dead() -> None:
            if not self._dead:
                callback()

        self._clock.call_at(when, unless_dead)

    def _start_next(self, lane: LaneId, state: _Lane) -> None:
        if state.running is not None or not state.waiting:
            return
        run = state.waiting.popleft()
        now = self._clock.now()
        running = state.running = self._running[run.attempt] = _Running(lane, run, now)
        duration = self._duration(run)
        timeout = run.work.timeout_seconds
        if timeout is not None and timeout < duration:
            self._at(now + timeout, lambda: self._stop(running, "timed_out"))
        if duration >= LONG_SECONDS:
            self._at(now + LONG_SECONDS, lambda: self._tell_long(running))
        self._at(now + duration, lambda: self._end(running, None))

    def _tell_long(self, running: _Running) -> None:
        state = self._lanes.get(running.lane)
        if state is None or state.running is not running:
            return
        running.is_long = True
        self._listener.started([(running.run.attempt, running.started_at)])
        written = self._output(running.run)
        if written:
            self._listener.wrote([Text(running.run.attempt, 1, 0, written)])
        returned = [run.attempt for run in state.waiting]
        if returned:
            state.waiting.clear()
            self._listener.returned(running.lane, returned)

    def _stop(self, running: _Running, state: FinishedState) -> None:
        if running.stopped_as is None and self._running.get(running.run.attempt) is running:
            running.stopped_as = state
            delay = self._random.random() * self._kill_seconds_max
            self._at(self._clock.now() + delay, lambda: self._end(running, state))

    def _end(self, running: _Running, stopped_as: FinishedState | None) -> None:
        # Both its own end and a stop may be due: the first counts.
        if self._running.get(running.run.attempt) is not running:
            return
        if stopped_as is None and running.stopped_as is not None:
            return  # the kill is under way
        del self._running[running.run.attempt]
        lane = self._lanes[running.lane]
        lane.running = None
        if stopped_as is not None:
            finished = self._stopped(running, stopped_as)
        else:
            finished = msgspec.structs.replace(
                self._outcome(running.run),
                attempt=running.run.attempt,
                started_at=running.started_at,
                ended_at=self._clock.now(),
            )
        self._listener.finished([finished])
        # The listener may have submitted more, which then has its own start under way.
        self._start_next(running.lane, lane)

    def _stopped(self, running: _Running, state: FinishedState) -> Finished:
        return Finished(
            running.run.attempt,
            state,
            exit_code=137,
            error="timed out" if state == "timed_out" else "cancelled",
            started_at=running.started_at,
            ended_at=self._clock.now(),
        )


def _succeeded(run: Run) -> Finished:
    return Finished(run.attempt, "succeeded", value=b"null", exit_code=0)


def _silent(_: Run) -> bytes:
    return b""
