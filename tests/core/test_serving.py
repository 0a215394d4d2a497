"""Models that a worker gains and loses while it runs."""

from __future__ import annotations

from mycel.core import events, messages
from mycel.core.effects import Effect, Send
from mycel.core.identifiers import PeerId, RequestId
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Described, LeaseOver, Offer
from mycel.core.model.resources import Capabilities, Ledger, Requirements, ServedModel
from mycel.core.model.work import Shape, reserved
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


def ask(machine: WorkerMachine, slots: int, now: float) -> Offer:
    request = messages.Request(RequestId(int(now)), ASKS, slots)
    effects = machine.handle(events.Received(ONE, request, now), now)
    effects += machine.handle(events.Tick(), now + 1.0)
    [offer] = sent(effects, Offer)
    assert isinstance(offer, Offer)
    return offer


def test_a_model_that_is_gained_is_told_and_granted() -> None:
    machine = worker()
    assert "needs the model parrot" in ask(machine, 1, 1.0).reason
    [told] = sent(machine.handle(events.Serving((PARROT,)), 10.0), Described)
    assert isinstance(told, Described)
    assert told.capabilities.models == ("parrot",)
    assert dict(told.free.custom) == {"licence": 1.0, "model:parrot": 2.0}
    assert ask(machine, 5, 20.0).slots == 2


def test_nothing_is_told_of_what_is_as_before() -> None:
    machine = worker(PARROT)
    machine.handle(events.Tick(), 5.0)
    assert machine.handle(events.Serving((PARROT,)), 10.0) == []


def test_leases_of_a_model_that_is_lost_end() -> None:
    machine = worker(PARROT)
    assert ask(machine, 2, 1.0).slots == 2
    effects = machine.handle(events.Serving(()), 10.0)
    [over] = sent(effects, LeaseOver)
    assert isinstance(over, LeaseOver)
    assert "not served any more" in over.reason
    assert machine.ledger.free.custom == (("licence", 1.0),)
    machine.handle(events.Serving((PARROT,)), 11.0)
    assert ask(machine, 2, 20.0).slots == 2, "its slots are all there again"


def test_a_model_that_is_loaded_again_stays_known_and_is_not_granted() -> None:
    machine = worker(PARROT)
    assert ask(machine, 2, 1.0).slots == 2
    reloading = ServedModel("parrot", slots=0)
    effects = machine.handle(events.Serving((reloading,)), 10.0)
    assert len(sent(effects, LeaseOver)) == 1
    assert ask(machine, 1, 20.0).reason == "it has no room now"


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
