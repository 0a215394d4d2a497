"""What a worker has for a scheduler: told as changes, when others book it, and afresh on every
link."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from mycel.core import events, messages
from mycel.core.effects import Effect, RunAttempts, Send
from mycel.core.identifiers import AttemptId, JobId, JobNumber, PeerId, ShapeNumber
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Described, LoadChange, Register, load_change
from mycel.core.messages.refusals import NO_ROOM
from mycel.core.model.resources import Capabilities, Free, Requirements, ServedModel, Usage
from mycel.core.model.work import Finished, Shape, Work
from mycel.core.worker import WorkerMachine

from .test_calling import Stage as SchedulerStage

ONE, OTHER = PeerId("one"), PeerId("other")
MACHINE = Capabilities(cpu_cores=4.0, memory=8 << 30, drivers=("process",))
CORE = Shape("process", Requirements(cpu_cores=1.0))

amounts = st.integers(0, 3)
frees = st.builds(
    Free,
    cpu_millis=amounts,
    memory=amounts,
    disk=amounts,
    gpu_millis=st.tuples(amounts, amounts),
    custom=st.sampled_from([(), (("licence", 1.0),)]),
)


@given(frees, frees, st.integers(0, 9), st.sampled_from(["", "it was drained"]))
def test_a_change_brings_one_state_to_the_other(
    before: Free, now: Free, running: int, closed_for: str
) -> None:
    change = load_change(before, now, running, closed_for)
    assert change.applied_to(before) == now
    assert change.accepting == (not closed_for)
    if before == now:
        assert change == LoadChange(running, not closed_for, closed_for=closed_for)


class Stage:
    def __init__(self) -> None:
        self.machine = WorkerMachine(
            WorkerSettings(tell_seconds=1.0, share_seconds=1.0),
            MACHINE,
            name="worker",
            digest=lambda value: b"",
        )
        self.machine.handle(events.SpoolLoaded(1, {}), 0.0)
        self._attempts = 0

    def link(self, peer: PeerId, now: float) -> Register:
        [register] = sent(self.machine.handle(events.LinkUp(peer), now), peer)
        assert isinstance(register, Register)
        self.welcome(peer, now)
        return register

    def welcome(self, peer: PeerId, now: float) -> list[Effect]:
        welcome = messages.Welcome(messages.WIRE_VERSION, 1, 15.0, [], [])
        return self.machine.handle(events.Received(peer, welcome, now), now)

    def assign(self, peer: PeerId, now: float, slots: int = 1) -> list[Effect]:
        """One more task, which takes a core until it ends; the scheduler has so many slots."""
        self._attempts += 1
        lease = self.machine.scheduler(peer).lease
        introduce = messages.Introduce(lease, ShapeNumber(1), CORE)
        self.machine.handle(events.Received(peer, introduce, now), now)
        first = AttemptId(self._attempts)
        bundle = messages.Bundle(
            first, JobNumber(1), JobId("job"), 1, Work("process"), [0], [1], []
        )
        assign = messages.Assign(lease, ShapeNumber(1), slots, [bundle])
        return self.machine.handle(events.Received(peer, assign, now), now)

    def finish(self, assigned: list[Effect], now: float) -> list[Effect]:
        [runs] = [one.runs for one in assigned if isinstance(one, RunAttempts)]
        done = Finished(runs[0].attempt, "succeeded")
        return self.machine.handle(events.RunsFinished([done]), now)


def sent(effects: list[Effect], peer: PeerId) -> list[object]:
    return [one.message for one in effects if isinstance(one, Send) and one.peer == peer]


def changes(effects: list[Effect], peer: PeerId) -> list[LoadChange]:
    return [one for one in sent(effects, peer) if isinstance(one, LoadChange)]


def test_only_what_others_have_booked_is_told() -> None:
    stage = Stage()
    stage.link(ONE, 0.0)
    stage.link(OTHER, 0.0)
    effects = stage.assign(ONE, 10.0)
    assert changes(effects, ONE) == [], "it knows what it has booked itself"
    [change] = changes(effects, OTHER)
    assert (change.cpu_millis, change.memory, change.disk) == (3000, None, None)


def test_a_worker_of_one_scheduler_tells_it_nothing() -> None:
    stage = Stage()
    stage.link(ONE, 0.0)
    for second in range(10, 20):
        assigned = stage.assign(ONE, float(second))
        assert changes(assigned, ONE) == []
        assert changes(stage.finish(assigned, second + 0.5), ONE) == []


def test_changes_within_moments_are_told_together() -> None:
    stage = Stage()
    free = stage.link(OTHER, 0.0).free
    stage.link(ONE, 0.0)
    told = changes(stage.assign(ONE, 10.0), OTHER)
    for slots, moment in enumerate((10.1, 10.2, 10.3), 2):
        assert changes(stage.assign(ONE, moment, slots), OTHER) == []
    wake_at = stage.machine.wake_at
    assert wake_at is not None
    assert wake_at <= 11.0
    told += changes(stage.machine.handle(events.Tick(), 11.0), OTHER)
    assert len(told) == 2
    for change in told:
        free = change.applied_to(free)
    assert free == stage.machine.ledger.free


def test_who_was_refused_for_want_of_room_hears_when_there_is_some() -> None:
    stage = Stage()
    stage.link(ONE, 0.0)
    stage.link(OTHER, 0.0)
    assigned = [stage.assign(ONE, 10.0, slots) for slots in range(1, 5)]
    [refused] = sent(stage.assign(OTHER, 20.0), OTHER)
    assert isinstance(refused, messages.Refused)
    assert (refused.code, refused.room) == (NO_ROOM, Free(memory=8 << 30))
    [change] = changes(stage.finish(assigned[0], 25.0), OTHER)
    assert change.applied_to(Free()).cpu_millis == 1000
    assert changes(stage.finish(assigned[1], 25.1), OTHER) == [], "it is told the rest later"


def test_a_new_link_begins_with_the_whole() -> None:
    stage = Stage()
    stage.link(ONE, 0.0)
    stage.link(OTHER, 0.0)
    stage.machine.handle(events.LinkDown(OTHER, "lost"), 5.0)
    stage.assign(ONE, 10.0)
    register = stage.link(OTHER, 20.0)
    assert register.free == stage.machine.ledger.free
    [change] = changes(stage.assign(ONE, 30.0, slots=2), OTHER)
    assert change.applied_to(register.free) == stage.machine.ledger.free


def test_usage_is_told_once_it_has_changed_and_with_each_new_link() -> None:
    stage = Stage()
    stage.link(ONE, 0.0)
    usage = Usage(4, 8, (16,))
    [change] = changes(stage.machine.handle(events.UsageChanged(usage), 10.0), ONE)
    assert change.usage == usage
    assert stage.link(OTHER, 30.0).usage == usage


def test_nothing_is_told_before_the_registration_is_answered() -> None:
    """It goes by another stream, and could overtake the registration."""
    stage = Stage()
    stage.machine.handle(events.LinkUp(ONE), 0.0)
    shut = stage.machine.handle(events.Shut("owner", "its owner is here"), 0.0)
    assert not [one for one in sent(shut, ONE) if isinstance(one, LoadChange)]
    [change] = sent(stage.welcome(ONE, 1.0), ONE)
    assert isinstance(change, LoadChange)
    assert change.closed_for == "its owner is here"


def test_whichever_stream_is_ahead_the_scheduler_knows_in_the_end_what_is_free() -> None:
    """Descriptions and changes of load go by different streams, each in its own order."""
    served = ServedModel("parrot", slots=2, memory=1 << 30)
    for order in itertools.product((True, False), repeat=4):
        stage = Stage()
        scheduler = SchedulerStage()
        stage.link(OTHER, 0.0)
        register = stage.link(ONE, 0.0)
        said = sent(stage.assign(OTHER, 1.0), ONE)
        said += sent(stage.machine.handle(events.Serving((served,)), 2.0), ONE)
        said += sent(stage.assign(OTHER, 3.0, slots=2), ONE)
        said += sent(stage.machine.handle(events.Tick(), 10.0), ONE)
        changes = [one for one in said if isinstance(one, LoadChange)]
        descriptions = [one for one in said if isinstance(one, Described)]
        assert len(changes) >= 2
        assert len(descriptions) == 1

        worker = PeerId("worker")
        scheduler.tell(events.LinkUp(worker))
        scheduler.tell(events.Received(worker, register, 0.0))
        for is_change in (*order, *(True,) * len(changes), False):
            waiting = changes if is_change else descriptions
            if waiting:
                scheduler.tell(events.Received(worker, waiting.pop(0), 0.0))
        known = scheduler.machine.state.workers[worker]
        assert known.book.room == stage.machine.ledger.free, order
        assert known.capabilities == stage.machine.capabilities


def test_after_a_description_the_load_is_told_as_a_whole() -> None:
    stage = Stage()
    stage.link(ONE, 0.0)
    told = stage.machine.handle(events.Reachable(("/memory/elsewhere",)), 10.0)
    [change] = changes(told, ONE)
    free = stage.machine.ledger.free
    assert change == load_change(None, free, 0)
    assert change.applied_to(Free()) == free


def test_a_scheduler_takes_what_is_free_from_a_worker_that_says_it_with_its_description() -> None:
    """One of an earlier release."""
    scheduler = SchedulerStage()
    scheduler.register("worker", MACHINE)
    free = Free(cpu_millis=1000, memory=1 << 30)
    described = Described(MACHINE, free)
    scheduler.tell(events.Received(PeerId("worker"), described, 0.0))
    assert scheduler.machine.state.workers[PeerId("worker")].book.room == free
