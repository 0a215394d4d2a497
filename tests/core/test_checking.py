"""Workers without a link are asked for signs of life, a bounded number at a time."""

from __future__ import annotations

from collections import Counter

from mycel.core import events
from mycel.core.effects import Check, Effect
from mycel.core.identifiers import PeerId
from mycel.core.invariants import check_scheduler
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.scheduler.workers.worker_probes import CHECKS_PER_SECOND

from .test_calling import LARGE, Stage, dialled

INTERVAL = 30.0
TIMEOUT = 5.0
SETTINGS = SchedulerSettings(health_check_interval=INTERVAL, health_check_timeout=TIMEOUT)


class Swarm(Stage):
    """Every worker is one of: alive, dead (its port refuses), silent."""

    def __init__(self, settings: SchedulerSettings = SETTINGS) -> None:
        super().__init__(settings)
        self.dead: set[str] = set()
        self.silent: set[str] = set()
        self.checked: list[tuple[float, str]] = []

    def tell(self, event: events.Event) -> list[Effect]:
        effects = super().tell(event)
        for effect in effects:
            if isinstance(effect, Check):
                self.checked.append((self.now, effect.peer))
                self._answer(effect.peer)
        return effects

    def _answer(self, peer: PeerId) -> None:
        if peer in self.dead:
            self.tell(events.DialFailed(peer, refused=True))
        elif peer not in self.silent:
            self.tell(events.CheckAnswered(peer, 0.01))


def test_a_worker_that_answers_stays_and_is_asked_once_in_an_interval() -> None:
    swarm = Swarm()
    swarm.see("worker")
    swarm.run_until(10 * INTERVAL - 1.0)
    assert swarm.states == {"worker": "known"}
    assert [when for when, _ in swarm.checked] == [INTERVAL * turn for turn in range(1, 10)]


def test_a_dead_one_is_gone_within_twice_the_interval_and_stays_gone() -> None:
    swarm = Swarm()
    swarm.see("worker", boot=3)
    swarm.run_until(INTERVAL + 1.0)
    swarm.dead.add("worker")
    swarm.run_until(2 * INTERVAL + 1.0)
    assert swarm.states == {}
    swarm.see("worker", boot=3, sequence=2, published_at=0.0)
    assert swarm.states == {}, "an old record brings no ghost"
    swarm.see("worker", boot=4)
    assert swarm.states == {"worker": "known"}, "a later boot is alive"


def test_a_silent_one_is_suspect_and_not_called_and_gone_in_time() -> None:
    swarm = Swarm()
    swarm.see("frozen")
    swarm.see("awake")
    swarm.silent.add("frozen")
    swarm.run_until(INTERVAL + TIMEOUT + 0.1)
    assert swarm.states == {"frozen": "suspect", "awake": "known"}
    assert dialled(swarm.submit(count=4)) == ["awake"], "no work for one that may be frozen"
    swarm.run_until(2 * INTERVAL)
    assert "frozen" not in swarm.states


def test_a_suspect_that_answers_again_is_called_again() -> None:
    swarm = Swarm()
    swarm.see("worker")
    swarm.silent.add("worker")
    swarm.run_until(INTERVAL + TIMEOUT + 0.1)
    assert dialled(swarm.submit()) == []
    swarm.silent.clear()
    swarm.run_until(INTERVAL + 2 * TIMEOUT + 0.1)
    assert swarm.states == {"worker": "known"}
    assert dialled(swarm.submit()) == ["worker"]


def test_a_late_answer_of_one_believed_dead_lets_its_record_count_again() -> None:
    swarm = Swarm()
    swarm.see("worker", boot=3)
    swarm.silent.add("worker")
    swarm.run_until(2 * INTERVAL)
    swarm.see("worker", boot=3, sequence=1)
    assert swarm.states == {}
    swarm.tell(events.CheckAnswered(PeerId("worker"), 20.0))
    swarm.see("worker", boot=3, sequence=1)
    assert swarm.states == {"worker": "known"}


def test_one_that_is_linked_called_or_withdrawn_is_not_checked() -> None:
    swarm = Swarm()
    for name in ("linked", "withdrawn"):
        swarm.see(name)
    swarm.see("called", LARGE)
    swarm.register("linked")
    swarm.tell(events.WorkerWithdrawn(PeerId("withdrawn")))
    assert dialled(swarm.submit(memory=32 << 30)) == ["called"]
    swarm.run_until(INTERVAL + 1.0)
    assert swarm.checked == []


def test_hearing_of_a_worker_again_puts_no_check_off() -> None:
    swarm = Swarm()
    swarm.see("worker")
    swarm.dead.add("worker")
    for second in range(1, int(INTERVAL) + 1):
        swarm.run_until(float(second))
        swarm.see("worker", sequence=second)
    swarm.run_until(INTERVAL + 1.0)
    assert swarm.states == {}


def test_a_worker_that_was_parted_from_is_checked_too() -> None:
    swarm = Swarm(SchedulerSettings(linked_workers_max=1))
    swarm.register("one")
    swarm.register("two")
    swarm.dead.add("one")
    swarm.run_until(INTERVAL + 1.0)
    assert swarm.states == {"two": "healthy"}


def test_ten_thousand_are_walked_through_within_two_intervals() -> None:
    swarm = Swarm()
    machine = swarm.machine
    names = [f"worker-{number}" for number in range(10_000)]
    machine.handle(events.WorkersSeen([swarm.sighting(name) for name in names]), 0.0)
    swarm.dead = set(names[: len(names) // 2])
    now = 0.0
    rate: Counter[int] = Counter()
    while (wake_at := machine.wake_at) is not None and wake_at <= 2 * INTERVAL:
        now = max(now, wake_at)
        pending = machine.handle(events.Tick(), now)
        for effect in pending:
            if isinstance(effect, Check):
                rate[int(now)] += 1
                refused = effect.peer in swarm.dead
                failed = events.DialFailed(effect.peer, refused=True)
                alive = events.CheckAnswered(effect.peer, 0.01)
                machine.handle(failed if refused else alive, now)
    assert len(machine.state.known) == len(names) - len(swarm.dead)
    assert not any(machine.state.known.get(PeerId(name)) for name in swarm.dead)
    assert max(rate.values()) <= CHECKS_PER_SECOND * 1.1
    check_scheduler(machine)


def test_a_record_that_ends_while_its_worker_is_asked_is_no_surprise() -> None:
    swarm = Swarm()
    swarm.see("worker", valid_seconds=INTERVAL + TIMEOUT / 2)
    swarm.silent.add("worker")
    swarm.run_until(INTERVAL + 1.0)
    swarm.now = INTERVAL + 2 * TIMEOUT  # a busy machine: both are due in one turn
    swarm.tell(events.Tick())
    assert swarm.states == {}
