"""Workers without a link: called when they are wanted, parted from when not, never ghosts."""

from __future__ import annotations

from typing import Any

import pytest

from mycel.core import events
from mycel.core.effects import Announce, Dial, Effect, Part, Seek, Send, SendAhead
from mycel.core.events import Sighting
from mycel.core.identifiers import JobId, PeerId, RequestId, ulid
from mycel.core.invariants import check_scheduler
from mycel.core.journal import Restored
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.messages import WIRE_VERSION, Assign, Register
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Capabilities, Ledger, Requirements
from mycel.core.model.work import Work
from mycel.core.scheduler import Scheduler
from mycel.core.views import WorkerView

from .keys import SECRET, keyed

SMALL = Capabilities(cpu_cores=2.0, memory=2 << 30, drivers=("process",))
LARGE = Capabilities(cpu_cores=2.0, memory=64 << 30, drivers=("process",))
UNIX = 1_700_000_000.0


class Stage:
    """A scheduler with its clock at hand; its Unix time is `UNIX` plus that."""

    def __init__(self, settings: SchedulerSettings | None = None) -> None:
        self.machine = Scheduler(
            settings or SchedulerSettings(),
            digest=lambda value: b"",
            keyed=keyed,
            random=lambda: 0.5,
        )
        self.now = 0.0
        self._numbers = iter(range(1, 10**9))
        self.tell(events.WallClock(UNIX))
        self.tell(events.Restart(1, Restored([], [], [], [], [], 0, 0, 0, 0), SECRET))

    def tell(self, event: events.Event) -> list[Effect]:
        effects = self.machine.handle(event, self.now)
        check_scheduler(self.machine)
        return effects

    def run_until(self, when: float) -> list[Effect]:
        found: list[Effect] = []
        while (wake_at := self.machine.wake_at) is not None and wake_at <= when:
            self.now = max(self.now, wake_at)
            found += self.tell(events.Tick())
        self.now = when
        return found

    def submit(self, memory: int = 0, count: int = 1) -> list[Effect]:
        number = next(self._numbers)
        need = Requirements(cpu_cores=1.0, min_memory=memory)
        specification = Specification(Work("process", command=("true",)), need)
        job = JobId(ulid(number, bytes(10)))
        return self.tell(
            events.Submit(
                RequestId(number), job, "", "owner", specification, count, b"", close=True
            )
        )

    def see(self, name: str, has: Capabilities = SMALL, **changes: Any) -> list[Effect]:
        return self.tell(events.WorkersSeen([self.sighting(name, has, **changes)]))

    def sighting(self, name: str, has: Capabilities = SMALL, **changes: Any) -> Sighting:
        fields: dict[str, Any] = {
            "peer": PeerId(name),
            "boot": 1,
            "sequence": 1,
            "published_at": UNIX + self.now,
            "valid_seconds": 600.0,
            "source": "dht",
            "capabilities": has,
            "addresses": (f"/memory/{name}",),
            "name": name,
        }
        return Sighting(**(fields | changes))

    def register(self, name: str, has: Capabilities = SMALL, boot: int = 1) -> list[Effect]:
        message = Register(
            WIRE_VERSION, boot, self.now, name, has, Ledger(has).free, (), [], [], []
        )
        return self.tell(events.Received(PeerId(name), message, self.now))

    @property
    def states(self) -> dict[str, str]:
        views: list[WorkerView] = []
        for effect in self.tell(events.ReadWorkers(RequestId(0))):
            views = effect.answer  # type: ignore[attr-defined]
        return {view.name: view.state for view in views}


def kinds(effects: list[Effect], kind: type[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def dialled(effects: list[Effect]) -> list[str]:
    return [effect.peer for effect in effects if isinstance(effect, Dial)]


def assigned(effects: list[Effect]) -> list[str]:
    """Who was sent tasks."""
    sent = [effect for effect in effects if isinstance(effect, Send | SendAhead)]
    return [effect.peer for effect in sent if isinstance(effect.message, Assign)]


def test_a_known_worker_is_called_when_work_comes_and_used_when_it_registers() -> None:
    stage = Stage()
    stage.see("small")
    stage.see("large", LARGE)
    assert stage.states == {"small": "known", "large": "known"}
    assert dialled(stage.submit(memory=32 << 30)) == ["large"], "the whole requirement counts"
    assert stage.states == {"small": "known", "large": "called"}
    assert assigned(stage.register("large", LARGE)) == ["large"]
    assert stage.states["large"] == "healthy"


def test_no_more_are_called_than_are_wanted() -> None:
    stage = Stage()
    for number in range(20):
        stage.see(f"worker-{number}")
    assert len(dialled(stage.submit(count=6))) == 3, "each has two cores"


def test_work_that_comes_later_finds_workers_seen_later() -> None:
    stage = Stage()
    stage.submit(memory=32 << 30)
    assert dialled(stage.see("small")) == []
    assert dialled(stage.see("large", LARGE)) == ["large"]


def test_a_call_that_is_refused_is_a_death_and_the_next_is_called() -> None:
    stage = Stage()
    stage.see("one")
    stage.see("two")
    [first] = dialled(stage.submit())
    effects = stage.tell(events.DialFailed(PeerId(first), refused=True))
    assert dialled(effects) == [({"one", "two"} - {first}).pop()]
    assert first not in stage.states


def test_a_call_that_nobody_answers_soon_makes_another_be_called() -> None:
    stage = Stage()
    stage.see("one")
    stage.see("two")
    [first] = dialled(stage.submit())
    [second] = dialled(stage.run_until(stage.machine.state.settings.call_seconds + 0.1))
    assert {first, second} == {"one", "two"}
    assert stage.states == {"one": "called", "two": "called"}


def test_a_late_call_for_what_was_cancelled_leaves_the_next_job_alone() -> None:
    stage = Stage()
    stage.see("one")
    stage.see("two")
    assert len(dialled(stage.submit(count=4))) == 2
    [job] = stage.machine.state.job_ids
    stage.tell(events.CancelJob(RequestId(0), job))
    stage.tell(events.DialFailed(PeerId("one"), refused=True))
    assert not stage.machine.state.queues, "nothing is left of its shape"
    stage.submit()
    stage.run_until(stage.machine.state.settings.call_seconds + 0.1)  # "two" is late
    assert assigned(stage.register("three")) == ["three"]


def test_a_call_for_what_was_cancelled_serves_the_next_job_of_its_shape() -> None:
    stage = Stage()
    for name in ("one", "two", "three"):
        stage.see(name)
    assert len(dialled(stage.submit(count=4))) == 2
    [job] = stage.machine.state.job_ids
    stage.tell(events.CancelJob(RequestId(0), job))
    refused = next(iter(stage.machine.state.calls))
    stage.tell(events.DialFailed(refused, refused=True))
    assert not stage.machine.state.queues, "nothing is left of its shape"
    assert dialled(stage.submit(count=2)) == [], "the one that comes has room for both"
    assert len(dialled(stage.submit(count=2))) == 1


def test_a_call_that_nobody_answers_ends() -> None:
    stage = Stage()
    stage.see("frozen")
    stage.submit()
    stage.run_until(stage.machine.state.settings.away_seconds + 0.1)
    assert stage.states == {}


def test_an_old_record_does_not_bring_the_dead_back() -> None:
    stage = Stage()
    stage.see("worker", boot=3, sequence=7)
    stage.submit()
    stage.tell(events.DialFailed(PeerId("worker"), refused=True))
    stage.now += 30.0
    older: list[dict[str, Any]] = [
        {"boot": 3, "sequence": 7, "published_at": UNIX},
        {"boot": 3, "sequence": 8, "published_at": UNIX + 5.0},  # one we had not seen
        {"boot": 2, "sequence": 9, "published_at": UNIX + 29.0},
    ]
    for changes in older:
        assert stage.see("worker", **changes) == []
        assert stage.states == {}


@pytest.mark.parametrize(
    "changes", [{"boot": 4, "published_at": UNIX}, {"boot": 3, "published_at": UNIX + 100.0}]
)
def test_a_new_boot_or_a_record_from_after_its_death_does(changes: dict[str, Any]) -> None:
    stage = Stage()
    stage.see("worker", boot=3)
    stage.submit()
    stage.tell(events.DialFailed(PeerId("worker"), refused=True))
    stage.now += 100.0
    assert dialled(stage.see("worker", **changes)) == ["worker"]


def test_a_worker_that_registered_and_died_is_no_ghost_either() -> None:
    """Its record was never looked up while it lived."""
    stage = Stage()
    stage.register("worker", boot=5)
    stage.tell(events.LinkDown(PeerId("worker"), "lost"))
    stage.run_until(60.0)
    assert stage.states == {}
    assert stage.see("worker", boot=5, sequence=99, published_at=UNIX) == []
    assert stage.states == {}
    stage.register("worker", boot=5)
    assert stage.states == {"worker": "healthy"}, "who speaks is no ghost"


def test_an_older_record_changes_nothing() -> None:
    stage = Stage()
    stage.see("worker", LARGE, sequence=5)
    stage.see("worker", SMALL, sequence=4)
    known = stage.machine.state.known.get(PeerId("worker"))
    assert known is not None
    assert known.capabilities == LARGE


def test_a_record_says_nothing_of_a_worker_with_a_link() -> None:
    stage = Stage()
    stage.register("worker", SMALL)
    stage.see("worker", LARGE)
    worker = stage.machine.state.workers[PeerId("worker")]
    assert worker.capabilities == SMALL
    assert worker.facts["presence"] == ("dht", 0.0)
    assert len(stage.machine.state.known) == 0


def test_a_withdrawn_or_outdated_worker_is_forgotten() -> None:
    stage = Stage()
    stage.see("withdrawn")
    stage.see("outdated", valid_seconds=100.0)
    stage.tell(events.WorkerWithdrawn(PeerId("withdrawn")))
    assert stage.states == {"outdated": "known"}
    stage.run_until(101.0)
    assert stage.states == {}


# Seeking


def test_a_shape_without_any_worker_is_sought_at_once_and_then_ever_more_slowly() -> None:
    settings = SchedulerSettings(discovery_interval=10.0)
    stage = Stage(settings)
    stage.register("small")
    assert len(kinds(stage.submit(memory=32 << 30), Seek)) == 1
    tenths = [tenth / 10 for tenth in range(400)]
    moments = [when for when in tenths if kinds(stage.run_until(when), Seek)]
    assert moments == [1.0, 3.0, 7.0, 15.0, 25.0, 35.0]


def test_a_shape_whose_workers_are_busy_is_sought_every_interval() -> None:
    stage = Stage(SchedulerSettings(discovery_interval=10.0))
    stage.register("small")
    effects = stage.submit(count=5)
    assert not kinds(effects, Seek)
    assert assigned(effects) == ["small"]
    assert not kinds(stage.run_until(9.9), Seek)
    assert len(kinds(stage.run_until(10.2), Seek)) == 1


def test_a_shape_with_enough_is_not_sought() -> None:
    stage = Stage(SchedulerSettings(discovery_interval=10.0))
    stage.register("small")
    assert assigned(stage.submit()) == ["small"]
    assert not kinds(stage.run_until(14.0), Seek)


def test_work_after_a_pause_is_announced() -> None:
    stage = Stage()
    stage.now = 100.0
    assert kinds(stage.submit(), Announce)
    assert not kinds(stage.submit(), Announce)
    stage.now += 100.0
    assert not kinds(stage.submit(), Announce), "there was work all the time"


# Parting


def test_above_its_links_a_scheduler_parts_from_the_idle() -> None:
    stage = Stage(SchedulerSettings(linked_workers_max=2, known_seconds=100.0))
    stage.register("one")
    assert assigned(stage.submit()) == ["one"]
    stage.register("two")
    [part] = kinds(stage.register("three"), Part)
    assert part == Part(PeerId("two"), 100.0), "one works; two is the longest unused"
    assert stage.states == {"one": "healthy", "two": "known", "three": "healthy"}
    assert dialled(stage.submit(count=20)) == ["two"], "and is called when it is wanted"
    stage.register("two")
    assert stage.states["two"] == "healthy"


def test_a_worker_that_was_parted_from_and_never_came_back_is_forgotten() -> None:
    settings = SchedulerSettings(
        linked_workers_max=1, known_seconds=100.0, health_check_interval=1000.0
    )
    stage = Stage(settings)
    stage.register("one")
    stage.register("two")
    assert stage.states == {"one": "known", "two": "healthy"}
    stage.run_until(150.0)
    assert stage.states == {"one": "known", "two": "healthy"}
    stage.run_until(201.0)
    assert stage.states == {"two": "healthy"}


def test_ten_thousand_workers_come_and_few_stay_linked() -> None:
    stage = Stage(SchedulerSettings(linked_workers_max=100))
    machine = stage.machine
    parted = 0
    for number in range(10_000):
        has = LARGE if number % 1000 == 0 else SMALL
        free = Ledger(has).free
        message = Register(WIRE_VERSION, 1, 0.0, f"worker-{number}", has, free, (), [], [], [])
        event = events.Received(PeerId(f"worker-{number}"), message, 0.0)
        parted += len(kinds(machine.handle(event, 0.0), Part))
    assert len(machine.state.linked) == len(machine.state.workers) == 100
    assert len(machine.state.known) == parted == 9_900
    check_scheduler(machine)
    called = dialled(stage.submit(memory=32 << 30, count=20))
    assert len(called) == 10, "the ten large ones have two cores each"
    assert all(int(name.partition("-")[2]) % 1000 == 0 for name in called)


# Other versions


def test_a_worker_of_another_version_is_told_why_and_to_come_back_later() -> None:
    stage = Stage()
    message = Register(0, 1, 0.0, "old", SMALL, Ledger(SMALL).free, (), [], [], [])
    effects = stage.tell(events.Received(PeerId("old"), message, 0.0))
    [part] = [effect for effect in effects if isinstance(effect, Part)]
    assert part.reason == f"it speaks version 0, this scheduler {WIRE_VERSION}"
    assert part.come_back_seconds >= 60
    assert stage.states == {}
    assert stage.machine.figures().workers_refused == 1
