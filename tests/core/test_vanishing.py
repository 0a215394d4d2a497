"""Thousands of workers without a link, many of which vanish at once and without a word.

What asks them is modelled here: a knock, and where nobody answers it a dial, of which a few have
room at a time; see `membership/probes.py`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from random import Random

from mycel.core import events
from mycel.core.effects import Check
from mycel.core.identifiers import PeerId
from mycel.core.invariants import check_scheduler
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.scheduler.workers.worker_probes import (
    CHECKS_MAX,
    CHECKS_PER_SECOND,
    DEAF_CHECKS,
    KNOCKS_MAX,
)

from .test_calling import Stage

INTERVAL = 30.0
TIMEOUT = 5.0
SETTINGS = SchedulerSettings(health_check_interval=INTERVAL, health_check_timeout=TIMEOUT)
KNOCKS_SECONDS = 1.5
DIALS_MAX = 128
DIAL_SECONDS = 5.0


class Crowd:
    """Workers, and the ways to them."""

    def __init__(self, count: int) -> None:
        self.stage = Stage(SETTINGS)
        self.stage.machine.state.random = Random(7).random
        self.names = [f"worker-{number}" for number in range(count)]
        self.gone: set[str] = set()
        self.deaf: set[str] = set()
        self.dialling = 0
        self.dialling_max = 0
        self.knocks: Counter[int] = Counter()
        """By the second."""
        self.thorough: Counter[int] = Counter()
        self.checks: list[Check] = []
        self.suspects: set[str] = set()
        self._later: list[tuple[float, int, events.Event | None]] = []
        self._numbers = iter(range(10**9))
        sightings = [self.stage.sighting(name, valid_seconds=1e6) for name in self.names]
        self._tell(events.WorkersSeen(sightings), 0.0)

    @property
    def known(self) -> set[str]:
        return {known.peer for known in self.stage.machine.state.known}

    @property
    def late(self) -> int:
        return self.stage.machine.state.checks_late

    def run_until(self, when: float) -> None:
        machine = self.stage.machine
        while True:
            wake_at = machine.wake_at
            due_at = self._later[0][0] if self._later else None
            times = [time for time in (wake_at, due_at) if time is not None and time <= when]
            if not times:
                break
            now = self.stage.now = max(self.stage.now, min(times))
            if due_at == min(times):
                _, _, event = heapq.heappop(self._later)
                if event is None:
                    self.dialling -= 1
                else:
                    self._happened(event, now)
            else:
                self._tell(events.Tick(), now)
        self.stage.now = when
        check_scheduler(machine)

    def _tell(self, event: events.Event, now: float) -> None:
        for effect in self.stage.machine.handle(event, now):
            if isinstance(effect, Check):
                self._ask(effect, now)

    def _at(self, when: float, event: events.Event | None) -> None:
        heapq.heappush(self._later, (when, next(self._numbers), event))

    def _ask(self, check: Check, now: float) -> None:
        self.checks.append(check)
        known = self.stage.machine.state.known.get(check.peer)
        if known is not None and known.missed:
            self.suspects.add(check.peer)
        if check.is_thorough and self.dialling < DIALS_MAX:
            self.thorough[int(now)] += 1
            self._dial(check.peer, None, now)
            return
        self.knocks[int(now)] += 1
        if check.peer in self.gone or check.peer in self.deaf:
            self._at(now + KNOCKS_SECONDS, events.CheckPutOff(check.peer, True))
        else:
            self._at(now + 0.02, events.CheckAnswered(check.peer, 0.02, True))

    def _happened(self, event: events.Event, now: float) -> None:
        if isinstance(event, events.CheckPutOff):
            self._dial(event.peer, False, now)
        elif not (isinstance(event, events.CheckAnswered) and event.peer in self.gone):
            self._tell(event, now)

    def _dial(self, peer: PeerId, hears_knocks: bool | None, now: float) -> None:
        if self.dialling >= DIALS_MAX:
            self._tell(events.CheckPutOff(peer, True), now)
            return
        self.dialling += 1
        self.dialling_max = max(self.dialling_max, self.dialling)
        if peer in self.gone:
            self._at(now + DIAL_SECONDS, None)
        else:
            self._at(now + 0.05, None)
            self._at(now + 0.05, events.CheckAnswered(peer, 0.05, hears_knocks))


def test_ten_thousand_healthy_ones_cost_a_knock_each_and_few_connections() -> None:
    crowd = Crowd(10_000)
    crowd.run_until(2.5 * INTERVAL)
    crowd.knocks.clear()
    crowd.thorough.clear()
    late = crowd.late  # all became known in one moment, and had to wait for each other once
    crowd.run_until(5.5 * INTERVAL)
    seconds = 3 * INTERVAL
    assert crowd.known == set(crowd.names)
    assert not crowd.suspects
    assert crowd.late == late
    assert sum(crowd.knocks.values()) / seconds <= 10_000 / INTERVAL
    assert sum(crowd.thorough.values()) / seconds <= 10_000 / INTERVAL / KNOCKS_MAX * 1.2
    assert max(crowd.knocks.values()) <= 1.1 * CHECKS_PER_SECOND


def test_of_ten_thousand_the_half_that_vanish_are_gone_within_two_intervals() -> None:
    crowd = Crowd(10_000)
    crowd.run_until(2.5 * INTERVAL)
    crowd.gone = set(crowd.names[::2])
    crowd.run_until(4.5 * INTERVAL)
    assert crowd.known == set(crowd.names[1::2])
    assert not crowd.suspects & crowd.known, "nobody else was suspected"
    assert crowd.dialling_max <= DIALS_MAX


def test_where_knocks_are_not_heard_nobody_is_believed_dead_for_want_of_a_dial() -> None:
    crowd = Crowd(1500)
    crowd.run_until(2.5 * INTERVAL)
    crowd.gone = set(crowd.names[:500])
    crowd.deaf = set(crowd.names)  # every knock is lost from now on, here or on the way
    crowd.run_until(7 * INTERVAL)
    assert crowd.known >= set(crowd.names[500:])
    assert crowd.late > 0, "that the rest is checked late is shown"


def test_a_worker_that_hears_no_knocks_is_dialled_for_a_while_and_then_knocked_at_again() -> None:
    crowd = Crowd(1)
    crowd.deaf = set(crowd.names)
    crowd.run_until(1.5 * INTERVAL)
    [first] = crowd.checks
    assert not first.is_thorough
    crowd.run_until((1.5 + DEAF_CHECKS) * INTERVAL)
    assert [check.is_thorough for check in crowd.checks[1:]] == [True] * DEAF_CHECKS
    crowd.deaf.clear()
    crowd.run_until((3.5 + DEAF_CHECKS) * INTERVAL)
    assert [check.is_thorough for check in crowd.checks[-2:]] == [True, False]
    assert crowd.known == set(crowd.names)


def test_from_time_to_time_a_check_asks_who_answers() -> None:
    crowd = Crowd(1)
    crowd.run_until((3 * KNOCKS_MAX + 0.5) * INTERVAL)
    thorough = sum(check.is_thorough for check in crowd.checks)
    assert 2 <= thorough <= 3


def test_no_more_are_open_than_may_be() -> None:
    crowd = Crowd(CHECKS_MAX + 1000)
    crowd.gone = set(crowd.names)
    crowd.deaf = set(crowd.names)
    crowd.run_until(INTERVAL + TIMEOUT * 3)
    assert len({check.peer for check in crowd.checks}) <= CHECKS_MAX
    assert crowd.dialling_max <= DIALS_MAX


def test_what_a_busy_machine_has_delayed_is_made_up_for() -> None:
    crowd = Crowd(2000)
    crowd.run_until(INTERVAL - 1.0)
    machine, checks = crowd.stage.machine, 0
    for batch in range(20):
        effects = machine.handle(events.Tick(), INTERVAL + 0.25 * (batch + 1))
        checks += sum(isinstance(effect, Check) for effect in effects)
    assert checks >= 0.9 * 5.0 * CHECKS_PER_SECOND
