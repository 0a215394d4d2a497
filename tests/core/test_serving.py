"""Models that a worker gains and loses while it runs."""

from __future__ import annotations

from mycel.core import events, messages
from mycel.core.effects import Effect, RunAttempts, Send, WithdrawRuns
from mycel.core.identifiers import AttemptId, JobId, JobNumber, PeerId, ShapeNumber
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Described, Refused
from mycel.core.messages.refusals import NO_ROOM, UNSUITABLE
from mycel.core.model.resources import Capabilities, Ledger, Requirements, ServedModel
from mycel.core.model.work import Finished, Shape, Work, reserved
from mycel.core.worker import WorkerMachine
from mycel.core.worker.served_models import with_served

ONE = PeerId("one")
MACHINE = Capabilities(
    cpu_cores=4.0, memory=8 << 30, drivers=("model",), custom=(("licence", 1.0),)
)
PARROT = ServedModel("parrot", slots=2, memory=1 << 30)
ASKS = Shape("model", model="parrot")


def worker(*models: ServedModel) -> WorkerMachine:
    machine = WorkerMachine(WorkerSettings(), MACHINE, name="w", digest=lambda value: b"")
    machine.handle(events.SpoolLoaded(1, {}), 0.0)
    machine.handle(events.LinkUp(ONE), 0.0)
    machine.handle(events.Serving(models), 0.0)
    return machine


def sent(effects: list[Effect], kind: type[messages.Message]) -> list[object]:
    return [
        one.message for one in effects if isinstance(one, Send) and isinstance(one.message, kind)
    ]


def ask(machine: WorkerMachine, count: int, now: float) -> list[Effect]:
    """So many tasks, a slot each."""
    lease = machine.scheduler(ONE).lease
    introduce = messages.Introduce(lease, ShapeNumber(1), ASKS)
    machine.handle(events.Received(ONE, introduce, now), now)
    first = AttemptId(int(1000 * now))
    work = Work("model", model="parrot")
    bundle = messages.Bundle(
        first, JobNumber(1), JobId("job"), 1, work, list(range(count)), [1] * count, []
    )
    assign = messages.Assign(lease, ShapeNumber(1), count, [bundle])
    return machine.handle(events.Received(ONE, assign, now), now)


def begun(effects: list[Effect]) -> list[AttemptId]:
    return [run.attempt for one in effects if isinstance(one, RunAttempts) for run in one.runs]


def lanes(effects: list[Effect]) -> int:
    return len({one.lane for one in effects if isinstance(one, RunAttempts)})


def refused(effects: list[Effect]) -> tuple[str, str]:
    [found] = sent(effects, Refused)
    assert isinstance(found, Refused)
    return (found.code, found.reason)


def test_a_model_that_is_gained_is_told_and_used() -> None:
    machine = worker()
    code, reason = refused(ask(machine, 1, 1.0))
    assert code == UNSUITABLE
    assert "needs the model parrot" in reason
    [told] = sent(machine.handle(events.Serving((PARROT,)), 10.0), Described)
    assert isinstance(told, Described)
    assert told.capabilities.models == ("parrot",)
    assert dict(told.free.custom) == {"licence": 1.0, "model:parrot": 2.0}
    assert lanes(ask(machine, 5, 12.0)) == 2


def test_nothing_is_told_of_what_is_as_before() -> None:
    machine = worker(PARROT)
    machine.handle(events.Tick(), 5.0)
    assert machine.handle(events.Serving((PARROT,)), 10.0) == []


def test_what_waits_for_a_model_that_is_lost_goes_back() -> None:
    machine = worker(PARROT)
    runs = begun(ask(machine, 2, 1.0))
    effects = machine.handle(events.Serving(()), 2.0)
    assert [one.attempts for one in effects if isinstance(one, WithdrawRuns)] == [runs]
    assert refused(ask(machine, 1, 3.0))[0] == UNSUITABLE
    machine.handle(events.RunsFinished([Finished(run, "failed") for run in runs]), 4.0)
    assert machine.ledger.free.custom == (("licence", 1.0),)
    machine.handle(events.Serving((PARROT,)), 5.0)
    assert lanes(ask(machine, 2, 6.0)) == 2, "its slots are all there again"


def test_a_model_that_is_loaded_again_stays_known_and_has_no_room() -> None:
    machine = worker(PARROT)
    runs = begun(ask(machine, 2, 1.0))
    machine.handle(events.Serving((ServedModel("parrot", slots=0),)), 2.0)
    machine.handle(events.RunsFinished([Finished(run, "failed") for run in runs]), 3.0)
    assert refused(ask(machine, 1, 4.0)) == (NO_ROOM, "it has no room now")


def test_a_new_link_is_told_of_what_is_served_now() -> None:
    machine = worker(PARROT)
    effects = machine.handle(events.LinkUp(PeerId("other")), 1.0)
    [register] = sent(effects, messages.Register)
    assert isinstance(register, messages.Register)
    assert register.capabilities.served == (PARROT,)


def test_what_is_booked_of_a_reduced_resource_comes_back_in_the_end() -> None:
    ledger = Ledger(with_served(MACHINE, (PARROT,)))
    bookings = [ledger.book(reserved(ASKS)) for _ in range(2)]
    ledger.rename(with_served(MACHINE, (ServedModel("parrot", slots=1),)).custom)
    ledger.assert_sound()
    assert dict(ledger.free.custom)["model:parrot"] == 0.0
    for booking in bookings:
        assert ledger.book(reserved(ASKS)) is None
        assert booking is not None
        ledger.give_back(booking)
        ledger.assert_sound()
    assert dict(ledger.free.custom)["model:parrot"] == 1.0
    assert ledger.book(Requirements(custom=(("licence", 1.0),))) is not None
