"""The turn: frames before time, one commit, one timer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mycel.core.effects import Effect, Note, Record, SendAhead
from mycel.core.events import Event, LinkUp, Tick, WallClock
from mycel.core.identifiers import JobNumber, LeaseId, PeerId
from mycel.core.journal import Entry, EntryRefused, JobClosed
from mycel.core.messages import Renew
from mycel.runtime.runtime import STALLED_SECONDS, Done, Runtime
from mycel.store.errors import DiskRefused, EntriesRefused
from tests.simulation.time import ProcessClock, VirtualClock


class Script:
    """A machine that notes what it is told and does what the test says."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []
        self.wake_at: float | None = None
        self.effects: list[Effect] = []

    def handle(self, event: Event, now: float, *, more: bool = False) -> list[Effect]:
        if not isinstance(event, WallClock):
            self.told.append((type(event).__name__, now))
        if isinstance(event, Tick):
            self.wake_at = None
        effects, self.effects = self.effects, []
        return effects


class Disk:
    def __init__(self) -> None:
        self.groups: list[list[Entry]] = []
        self.done: list[Done] = []
        self.at_once: list[list[Entry]] = []
        self.is_quick = False
        self.fault: Exception | None = None
        """What it raises, which no store should."""

    def commit(self, entries: Sequence[Entry], done: Done) -> None:
        if self.fault is not None and not self.is_quick:
            raise self.fault
        self.groups.append(list(entries))
        self.done.append(done)

    def commit_at_once(self, entries: Sequence[Entry]) -> bool:
        if self.fault is not None and self.is_quick:
            raise self.fault
        if self.is_quick:
            self.at_once.append(list(entries))
        return self.is_quick


class Stage:
    def __init__(self, *, patient: bool = False) -> None:
        self.world = VirtualClock()
        self.clock = ProcessClock(self.world, 0.0)
        self.machine = Script()
        self.disk = Disk()
        self.left: list[str] = []
        self.failures: list[BaseException] = []
        self.refused: list[EntryRefused] = []
        self.instead: list[Effect] = []
        self.runtime = Runtime(
            self.machine,
            self.clock,
            self.disk,
            {Note: lambda note: self.left.append(note.event)},
            self.failures.append,
            patient=patient,
            amend=self._amend,
        )

    def _amend(self, refused: Sequence[EntryRefused], effects: list[Effect]) -> list[Effect]:
        self.refused += refused
        return [*effects, *self.instead]

    def tell(self, name: str = "peer") -> None:
        self.runtime.post(LinkUp(PeerId(name)))

    def run(self, seconds: float = 0.0) -> None:
        self.world.run_until(self.world.now() + seconds + 1e-6)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.machine.told]


def record(number: int) -> Record:
    return Record([JobClosed(JobNumber(number))])


def test_a_quick_disk_lets_effects_leave_within_the_turn() -> None:
    stage = Stage()
    stage.disk.is_quick = True
    stage.machine.effects = [record(1), Note("first", {}), record(2), Note("second", {})]
    stage.tell()
    stage.run()
    assert stage.left == ["first", "second"]
    assert len(stage.disk.at_once) == 1
    assert not stage.disk.groups


def test_a_commit_under_way_is_waited_for_even_if_the_disk_has_become_quick() -> None:
    stage = Stage()
    stage.machine.effects = [record(1), Note("first", {})]
    stage.tell()
    stage.run()
    stage.disk.is_quick = True
    stage.machine.effects = [record(2), Note("second", {})]
    stage.tell()
    stage.run()
    assert (stage.left, stage.disk.at_once) == ([], [])
    stage.disk.done[0](None)
    assert stage.left == ["first", "second"]


def test_what_arrives_together_shares_one_commit() -> None:
    stage = Stage()
    stage.machine.effects = [record(1), Note("first", {})]
    stage.tell("a")
    stage.tell("b")
    stage.run()
    assert stage.left == []
    assert len(stage.disk.groups) == 1
    stage.disk.done.pop()(None)
    assert stage.left == ["first"]


def test_what_comes_during_a_commit_goes_into_the_next() -> None:
    stage = Stage()
    for number in (1, 2, 3):
        stage.machine.effects = [record(number), Note(str(number), {})]
        stage.tell()
        stage.run()
    assert len(stage.disk.groups) == 1
    stage.disk.done.pop(0)(None)
    assert stage.left == ["1"]
    assert [entry.job for entry in stage.disk.groups[1]] == [2, 3]  # type: ignore[union-attr]
    stage.disk.done.pop(0)(None)
    assert stage.left == ["1", "2", "3"]


def test_frames_are_handled_before_time() -> None:
    stage = Stage()
    stage.machine.wake_at = stage.clock.now()
    stage.tell()
    stage.run()
    assert stage.names == ["LinkUp", "Tick"]


def test_time_is_told_when_it_comes_and_not_before() -> None:
    stage = Stage()
    stage.machine.wake_at = stage.clock.now() + 5.0
    stage.tell()
    stage.run(4.9)
    assert stage.names == ["LinkUp"]
    stage.run(0.2)
    assert stage.names == ["LinkUp", "Tick"]


def test_after_a_long_absence_the_network_speaks_first() -> None:
    stage = Stage(patient=True)
    stage.machine.wake_at = stage.clock.now() + 1.0
    stage.tell()
    stage.run()
    stage.clock.is_frozen = True
    stage.run(30.0)
    stage.clock.thaw()
    stage.clock.call_at(stage.clock.now() + 0.1, stage.tell)
    stage.run(1.0)
    assert stage.names == ["LinkUp", "LinkUp", "Tick"]


def test_a_failed_commit_ends_everything() -> None:
    stage = Stage()
    stage.machine.effects = [record(1), Note("never", {})]
    stage.tell()
    stage.run()
    stage.disk.done.pop()(OSError("the disk is full"))
    assert [str(error) for error in stage.failures] == ["the disk is full"]
    stage.tell()
    stage.run()
    assert stage.left == []
    assert stage.names == ["LinkUp"]


def test_a_fault_of_the_machine_ends_everything() -> None:
    stage = Stage()
    stage.machine.effects = [
        Note("before", {}),
        SendAhead(PeerId("nobody"), Renew(0.0, LeaseId(0))),
    ]
    stage.tell()
    stage.run()
    assert stage.left == ["before"]
    assert [type(error) for error in stage.failures] == [KeyError], "nobody performs renewals here"
    stage.tell()
    stage.run()
    assert stage.names == ["LinkUp"]


@pytest.mark.parametrize("is_quick", [True, False])
def test_whatever_a_journal_raises_stops_the_process(is_quick: bool) -> None:
    """It was waited for without end: every call hung."""
    stage = Stage()
    stage.disk.is_quick = is_quick
    stage.disk.fault = OverflowError("Python int too large to convert to SQLite INTEGER")
    stage.machine.effects = [record(1), Note("first", {})]
    stage.tell()
    stage.run()
    assert stage.failures == [stage.disk.fault]
    assert stage.left == []


def test_a_disk_that_refuses_stops_the_process() -> None:
    stage = Stage()
    stage.machine.effects = [record(1), Note("first", {})]
    stage.tell()
    stage.run()
    full = DiskRefused("the disk is full")
    stage.disk.done[0](full)
    assert (stage.failures, stage.left) == ([full], [])


def test_refused_entries_are_told_before_what_stands_on_them_leaves() -> None:
    stage = Stage()
    stage.machine.effects = [record(1), Note("first", {})]
    stage.tell()
    stage.run()
    stage.machine.effects = [record(2), Note("second", {})]
    stage.tell()
    stage.run()
    stage.instead = [record(3), Note("amended", {})]
    refused = EntryRefused(JobClosed(JobNumber(1)), "it cannot be stored")
    stage.disk.done[0](EntriesRefused([refused]))
    assert stage.refused == [refused]
    assert stage.left == ["first", "amended"]
    assert not stage.failures
    entries = [JobClosed(JobNumber(2)), JobClosed(JobNumber(3))]
    assert stage.disk.groups[1] == entries, "what it records goes behind what waits"
    stage.disk.done[1](None)
    assert stage.left == ["first", "amended", "second"]


def test_entries_that_wait_too_long_show() -> None:
    stage = Stage()
    assert not stage.runtime.is_stalled
    stage.machine.effects = [record(1), Note("first", {})]
    stage.tell()
    stage.run()
    stage.run(STALLED_SECONDS - 1.0)
    assert not stage.runtime.is_stalled
    stage.machine.effects = [record(2)]
    stage.tell()
    stage.run(2.0)
    assert stage.runtime.is_stalled, "what comes later does not make the first younger"
    stage.disk.done[0](None)
    assert not stage.runtime.is_stalled, "the disk goes on"
    stage.run(STALLED_SECONDS + 1.0)
    assert stage.runtime.is_stalled
    stage.disk.done[1](None)
    stage.run(STALLED_SECONDS + 1.0)
    assert not stage.runtime.is_stalled, "nothing waits"
