"""How many workers the queue deserves inside a cluster, and which of them go.

    wanted = waiting and running tasks ÷ tasks for each worker, between the least and the most

Too few: allocations are asked for. Too many: those that still wait for their allocation are
cancelled, the newest first; of those that run, only what has been idle for a while is drained, and
its allocation ends when it is drained and runs nothing. So no task is ever lost by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

START_AT_ONCE_MAX: Final = 10
"""Allocations asked for in one turn: a queue may be empty again a turn later."""
PAUSE_SECONDS: Final = 10.0
PAUSE_SECONDS_MAX: Final = 600.0


class PilotSettings(msgspec.Struct, frozen=True, kw_only=True):
    least: int = 0
    most: int = 10
    tasks_per_worker: int = 4
    idle_seconds: float = 60.0


class PilotWorker(msgspec.Struct, frozen=True):
    """One allocation, and what the swarm says of the worker in it."""

    name: str
    pending: bool
    """It waits for its allocation."""
    joined: bool = False
    tasks: int = 0
    drained: bool = False


class Demand(msgspec.Struct, frozen=True):
    """Of the swarm; None where nobody could be asked."""

    waiting: int
    running: int
    """On workers of the pilot."""


class Turn(msgspec.Struct, frozen=True):
    """What to do now, by the names of workers."""

    start: int = 0
    drain: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()


class PilotPlan:
    """Remembers since when workers are idle, and whether those it started came to anything."""

    def __init__(self, settings: PilotSettings) -> None:
        self._settings = settings
        self._idle_since: dict[str, float] = {}
        self._joined: set[str] = set()
        self._seen: set[str] = set()
        self._failures = 0
        self._start_at = 0.0
        self.is_closing = False
        """From now on nothing is started, and whatever is idle goes."""

    @property
    def failures(self) -> int:
        """So many allocations in a row ended without a worker that joined."""
        return self._failures

    def turn(self, demand: Demand, workers: Sequence[PilotWorker], now: float) -> Turn:
        self._note(workers, now)
        staying = [one for one in workers if not one.drained]
        wanted = self.wanted(demand)
        done = tuple(one.name for one in workers if one.drained and not one.tasks)
        if len(staying) < wanted:
            return Turn(start=self._starts(wanted - len(staying), now), cancel=done)
        surplus = len(staying) - wanted
        pending = [one.name for one in staying if one.pending]
        cancelled = tuple(reversed(pending))[:surplus]
        idle = [one.name for one in staying if self._is_idle(one, now)]
        return Turn(drain=tuple(idle[: surplus - len(cancelled)]), cancel=(*done, *cancelled))

    def wanted(self, demand: Demand) -> int:
        if self.is_closing:
            return 0
        tasks = demand.waiting + demand.running
        deserved = -(-tasks // self._settings.tasks_per_worker)
        return min(self._settings.most, max(self._settings.least, deserved))

    def _starts(self, missing: int, now: float) -> int:
        """After a failed start one at a time, and ever later."""
        if now < self._start_at:
            return 0
        return min(missing, 1 if self._failures else START_AT_ONCE_MAX)

    def _is_idle(self, worker: PilotWorker, now: float) -> bool:
        since = self._idle_since.get(worker.name)
        seconds = 0.0 if self.is_closing else self._settings.idle_seconds
        return since is not None and now - since >= seconds

    def _note(self, workers: Sequence[PilotWorker], now: float) -> None:
        there = {one.name for one in workers}
        for one in workers:
            if one.joined and one.name not in self._joined:
                self._joined.add(one.name)
                self._failures, self._start_at = 0, now
            if not one.joined or one.tasks:
                self._idle_since.pop(one.name, None)
            else:
                self._idle_since.setdefault(one.name, now)
            if not one.pending:
                self._seen.add(one.name)
        for name in self._seen - there:
            if name not in self._joined:
                self._failures += 1
                pause = PAUSE_SECONDS * 2 ** min(self._failures - 1, 10)
                self._start_at = now + min(pause, PAUSE_SECONDS_MAX)
            self._joined.discard(name)
            self._idle_since.pop(name, None)
        self._seen &= there
