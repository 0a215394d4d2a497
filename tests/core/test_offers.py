"""What a worker answers to a request: yes or no with the reason, ETA, cost and capacity."""

from __future__ import annotations

from mycel.core.effects import Send
from mycel.core.events import Event, LinkUp, Received, SpoolLoaded, Tick
from mycel.core.identifiers import PeerId, RequestId
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Offer, Request, Wanted
from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, Requirements
from mycel.core.model.work import Shape, model_slot
from mycel.core.worker import WorkerMachine

SCHEDULER = PeerId("scheduler")
SHAPE = Shape("process", Requirements(cpu_cores=1.0))


class Story:
    def __init__(self) -> None:
        has = Capabilities(
            cpu_cores=4.0,
            drivers=("process", "model"),
            price=Tariff(0.25),
            models=("llama",),
            custom=((model_slot("llama"), 8.0),),
        )
        self.machine = WorkerMachine(WorkerSettings(), has, name="w", digest=bytes)
        self.offers(SpoolLoaded(1, {}), 0.0)
        self.offers(LinkUp(SCHEDULER), 0.0)
        self.requests = 0

    def offers(self, event: Event, now: float) -> list[Offer]:
        return [
            effect.message
            for effect in self.machine.handle(event, now)
            if isinstance(effect, Send) and isinstance(effect.message, Offer)
        ]

    def request(self, slots: int, shape: Shape = SHAPE) -> list[Offer]:
        self.requests += 1
        message = Request(RequestId(self.requests), shape, slots)
        return self.offers(Received(SCHEDULER, message, 0.0), 0.0)


def test_a_yes_says_what_it_costs_and_what_else_fits() -> None:
    [offer] = Story().request(1)
    assert offer.yes
    assert (offer.slots, offer.capacity, offer.cost) == (1, 3, 0.25)
    assert offer.eta_seconds == 0.0


def test_a_models_requests_share_its_slots_and_not_the_memory_it_needs() -> None:
    [offer] = Story().request(2, Shape("model", Requirements(cpu_cores=4.0), "llama"))
    assert (offer.slots, offer.capacity) == (2, 6)


def test_a_no_says_why_and_when_there_may_be_room() -> None:
    story = Story()
    story.request(4)
    [grant] = story.machine.grants.values()
    grant.measure(2.5)
    assert story.request(1) == [], "it waits a little for room"
    [offer] = story.offers(Tick(), 0.1)
    assert not offer.yes
    assert offer.reason == "it has no room now"
    assert (offer.eta_seconds, offer.cost) == (2.5, 0.25)


def test_who_may_not_pay_the_price_is_told() -> None:
    [offer] = Story().request(1, Shape("process", SHAPE.requirements, max_cost=0.1))
    assert offer.reason == "may cost 0.1, it asks 0.25"


def test_one_message_tells_a_scheduler_of_all_its_leases_that_are_wanted() -> None:
    story = Story()
    held = [offer.lease for _ in range(4) for offer in story.request(1)]
    message = Request(RequestId(9), Shape("process", Requirements(cpu_cores=2.0)), 3)
    effects = story.machine.handle(Received(SCHEDULER, message, 0.0), 0.0)
    [wanted] = [one.message for one in effects if isinstance(one, Send)]
    assert isinstance(wanted, Wanted)
    assert [wanted.lease, *wanted.others] == held
    assert (wanted.slots, wanted.ours) == (3, True)
