"""Whether a worker is given work: it is withheld from one that spoils what it gets.

                 ┌───────────── trip ─────────────┐
                 │                                ▼
    new ── prove ──▶ trusted ── trip ──▶ quarantined ── try ──▶ probing
     ▲                                            ▲                │ │
     │                                            └───── trip ─────┘ │
     └──────────────────────────── pass ─────────────────────────────┘

A worker trips when, by its own fault, `failures_max` attempts in a row have failed or are held
far too long; or when attempts fail there far more often than the same tasks do elsewhere. After
a pause, which doubles each time, a single task tries it. Who passes begins as a newcomer does.

A newcomer gets a few tasks at once. It is trusted when as many have ended well and were not
quicker than can be believed: less than a tenth of what they take elsewhere. One that is, and
may be returning anything, gets a twentieth of what the others do, for a minute. A newcomer that
holds long tasks and spoils none gets twice as many every ten seconds.

Nothing here knows how a worker is withheld, and that one which alone can run a task gets it in
any state is its caller's to decide.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from typing import Final

from mycel.core.machine_settings import BreakerSettings
from mycel.core.model.resources import SLOTS_MAX
from mycel.core.states import Table

from .shape_ends import ShapeEnds, percentile
from .verdicts import Verdict


class BreakerState(StrEnum):
    NEW = "new"
    TRUSTED = "trusted"
    QUARANTINED = "quarantined"
    PROBING = "probing"


class BreakerStep(StrEnum):
    PROVE = "prove"
    TRIP = "trip"
    TRY = "try"
    PASS = "pass"  # noqa: S105 - a step, not a secret


BREAKER: Final = Table[BreakerState, BreakerStep](
    "worker's breaker",
    {
        (BreakerState.NEW, BreakerStep.PROVE): BreakerState.TRUSTED,
        (BreakerState.NEW, BreakerStep.TRIP): BreakerState.QUARANTINED,
        (BreakerState.TRUSTED, BreakerStep.TRIP): BreakerState.QUARANTINED,
        (BreakerState.QUARANTINED, BreakerStep.TRY): BreakerState.PROBING,
        (BreakerState.PROBING, BreakerStep.PASS): BreakerState.NEW,
        (BreakerState.PROBING, BreakerStep.TRIP): BreakerState.QUARANTINED,
    },
)


PEERS_MIN: Final = 20
"""A worker is compared with at least so many ends elsewhere…"""
COMPARED_MIN: Final = 5
"""…if so many of its own have failed."""
PACE_MIN: Final = 3
"""So many ends elsewhere show at what pace such tasks go."""
COMPARE_SECONDS: Final = 5.0
"""If nobody else has ended as many by then, there is nothing to compare a newcomer with."""
FAR_ABOVE: Final = 3.0
TOO_QUICK: Final = 0.1
DOUBTFUL_SHARE: Final = 20
"""One in so many goes to a newcomer that is too quick."""
HELD_FACTOR: Final = 10.0
HELD_SHARE: Final = 0.95
HELD_SECONDS_MIN: Final = 2.0
"""Sooner nothing is held too long: interpreters start, and machines are busy."""


class Breaker:
    """Of one worker."""

    __slots__ = (
        "_good",
        "_pause_seconds",
        "_settings",
        "failures",
        "reason",
        "since",
        "state",
        "until",
        "worker",
    )

    def __init__(
        self, worker: Hashable, settings: BreakerSettings, *, trusted: bool = False
    ) -> None:
        """`trusted`: it has proved itself before."""
        self.worker = worker
        self._settings = settings
        self._pause_seconds = settings.quarantine_seconds
        self.state = BreakerState.TRUSTED if trusted else BreakerState.NEW
        self.failures = 0
        """In a row, by its own fault."""
        self.since: float | None = None
        """When it was first given work in this state."""
        self.until = 0.0
        """Quarantined: when it may be tried."""
        self.reason = ""
        """Why it was quarantined last, for people."""
        self._good = 0
        """Ended well since it was new."""

    def room(self, out: int, ends: ShapeEnds, now: float) -> int:
        """How many attempts more it may be given, beside those that are out with it."""
        if self.state is BreakerState.TRUSTED:
            return SLOTS_MAX
        if self.state is BreakerState.PROBING:
            return max(0, 1 - out)
        if self.state is BreakerState.QUARANTINED:
            return 0
        return 0 if self._is_ahead(out, ends, now) else max(0, self._newcomers(now) - out)

    def _newcomers(self, now: float) -> int:
        settings = self._settings
        if self.since is None or self.failures:
            return settings.newcomer_tasks
        periods = int((now - self.since) / settings.newcomer_seconds)
        return min(SLOTS_MAX, settings.newcomer_tasks << min(periods, 12))

    def _is_ahead(self, out: int, ends: ShapeEnds, now: float) -> bool:
        """Whether it has had its share of a shape, while nobody knows whether to believe it."""
        settings = self._settings
        here = ends.count_of(self.worker)
        if here < settings.newcomer_tasks or self._is_believed(ends, now):
            return False
        elsewhere = max(0, ends.count - here)
        return here + out >= settings.newcomer_tasks + elsewhere // DOUBTFUL_SHARE

    def _is_believed(self, ends: ShapeEnds, now: float) -> bool:
        if self.since is None:
            return False
        waited = now - self.since
        here, elsewhere = ends.here(self.worker), ends.elsewhere(self.worker)
        if len(elsewhere) < PACE_MIN or not here:
            return waited >= COMPARE_SECONDS
        if percentile(here, 0.5) >= TOO_QUICK * percentile(elsewhere, 0.5):
            return True
        return waited >= self._settings.doubt_seconds

    def sent(self, now: float) -> None:
        """It was given work."""
        if self.since is None:
            self.since = now

    def try_it(self) -> None:
        """Its pause is over: the next task tries it."""
        self._step(BreakerStep.TRY)

    def ended(self, verdict: Verdict, ends: ShapeEnds, now: float) -> BreakerStep | None:
        """An attempt of a shape has ended there, and `ends` knows of it. What has changed."""
        if verdict is Verdict.GOOD:
            return self._ended_well(ends, now)
        if verdict is Verdict.WORKER:
            return self.fault("its attempts fail by its own fault", now)
        if verdict is Verdict.TASK:
            self.failures = 0
            if self.state is not BreakerState.QUARANTINED and self._fails_more(ends):
                return self._trip("attempts fail there far more often than elsewhere", now)
            if self.state is BreakerState.PROBING:
                return self._pass()  # it ran the task: whether that fails is the task's affair
        return None

    def fault(self, reason: str, now: float) -> BreakerStep | None:
        """It has spoiled another one."""
        self.failures += 1
        if self.state is BreakerState.QUARANTINED:
            return None
        is_probe = self.state is BreakerState.PROBING
        if is_probe or self.failures >= self._settings.failures_max:
            return self._trip(reason, now)
        return None

    def _ended_well(self, ends: ShapeEnds, now: float) -> BreakerStep | None:
        self.failures = 0
        if self.state is BreakerState.TRUSTED:
            return None
        if self.state is BreakerState.PROBING:
            return self._pass()
        if self.state is BreakerState.NEW:
            self._good += 1
            if self._good >= self._settings.newcomer_tasks and self._is_believed(ends, now):
                self._pause_seconds = self._settings.quarantine_seconds
                self._step(BreakerStep.PROVE)
                return BreakerStep.PROVE
        return None

    def _fails_more(self, ends: ShapeEnds) -> bool:
        failed, count = ends.failures_here(self.worker)
        failed_elsewhere, elsewhere = ends.failures_elsewhere(self.worker)
        if failed < COMPARED_MIN or elsewhere < PEERS_MIN:
            return False
        usual = (failed_elsewhere + 1) / (elsewhere + 2)
        return failed >= FAR_ABOVE * usual * count

    def _pass(self) -> BreakerStep:
        self._step(BreakerStep.PASS)
        return BreakerStep.PASS

    def _trip(self, reason: str, now: float) -> BreakerStep:
        self._step(BreakerStep.TRIP)
        self.reason = reason
        self.until = now + self._pause_seconds
        self._pause_seconds = min(2.0 * self._pause_seconds, self._settings.quarantine_seconds_max)
        return BreakerStep.TRIP

    def _step(self, step: BreakerStep) -> None:
        self.state = BREAKER[self.state, step]
        self.since = None
        self._good = 0


def held_seconds_max(worker: Hashable, ends: ShapeEnds) -> float | None:
    """How long a worker may hold an attempt of a shape until it is given up; None if too few
    have ended elsewhere."""
    elsewhere = ends.elsewhere(worker)
    if len(elsewhere) < PEERS_MIN:
        return None
    return max(HELD_SECONDS_MIN, HELD_FACTOR * percentile(elsewhere, HELD_SHARE))
