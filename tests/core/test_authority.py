"""A worker checks by what right it is asked, on its own, and again when that right ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mycel.core.effects import Effect, Send
from mycel.core.events import LinkUp, Received, Revoked, SpoolLoaded, Tick, WallClock
from mycel.core.identifiers import PeerId, RequestId
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import LeaseOver, Offer, Request
from mycel.core.model.resources import Capabilities, GpuRequirement, Requirements
from mycel.core.model.work import Shape
from mycel.core.rights import Rights
from mycel.core.worker import WorkerMachine
from mycel.core.worker.authorization import AcceptRules

SCHEDULER = PeerId("scheduler")
UNIX = 1_800_000_000.0
"""Wall time when the machine's clock says 0."""
GOOD = Rights(
    swarm="test",
    user="alice",
    actions=frozenset({"submit"}),
    priority_max=5,
    caps=(("cpu_cores", 2.0), ("gpus", 1.0)),
    revocation_ids=(b"first", b"second"),
    signer="aa",
    is_bound=True,
)
SHAPE = Shape("process", Requirements(cpu_cores=1), user="alice")


class Stage:
    """A worker whose tokens are what the test says."""

    def __init__(self, rights: Rights | str, rules: AcceptRules | None = None) -> None:
        self.machine = WorkerMachine(
            WorkerSettings(lease_seconds=1000.0),
            Capabilities(cpu_cores=8, memory=1 << 30, drivers=("process", "container")),
            name="w",
            digest=lambda value: value,
            inspect=lambda token, peer: rights,
            rules=rules or AcceptRules(),
        )
        self.now = 0.0
        for event in (SpoolLoaded(1, {}), WallClock(UNIX), LinkUp(SCHEDULER)):
            self.handle(event)

    def handle(self, event: Any) -> list[Effect]:
        return self.machine.handle(event, self.now)

    def ask(self, shape: Shape = SHAPE, token: bytes = b"token") -> Offer:
        request = Request(RequestId(1), shape, 1, token)
        effects = self.handle(Received(SCHEDULER, request, self.now))
        return next(offer for offer in sent(effects) if isinstance(offer, Offer))


def sent(effects: list[Effect]) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def other(**changes: Any) -> Rights:
    return msgspec.structs.replace(GOOD, **changes)


def test_a_good_token_gets_a_lease() -> None:
    assert Stage(GOOD).ask().yes
    assert Stage(other(priority_max=None, caps=())).ask().yes


@pytest.mark.parametrize(
    ("rights", "reason"),
    [
        ("token is not signed by the swarm's owner", "not signed"),
        (other(user="bob"), "not of the user 'alice'"),
        (other(user=""), "not of the user"),
        (other(actions=frozenset({"read"})), "does not allow to submit"),
        (other(is_bound=False), "not bound"),
        (other(expires_at=UNIX - 61), "expired"),
        (other(priority_max=-1), "priorities up to -1, not 0"),
        (other(caps=(("cpu_cores", 0.5),)), "cpu_cores up to 0.5, not 1"),
    ],
)
def test_what_the_token_does_not_give_is_refused_with_the_reason(
    rights: Rights | str, reason: str
) -> None:
    offer = Stage(rights).ask()
    assert not offer.yes
    assert reason in offer.reason


def test_without_a_token_there_is_no_lease() -> None:
    offer = Stage(GOOD).ask(token=b"")
    assert not offer.yes
    assert "got none" in offer.reason


@pytest.mark.parametrize(("most", "allowed"), [(None, False), (5.1, False), (5.0, True)])
def test_a_cap_on_the_price_wants_a_limit_of_the_task(most: float | None, allowed: bool) -> None:
    rights = other(caps=(("price", 5.0),))
    shape = Shape("process", Requirements(), user="alice", max_cost=most)
    objection = rights.objection(shape)
    assert (objection is None) == allowed
    assert allowed or "a price up to 5: give it a max_cost" in (objection or "")


def test_caps_are_told_to_the_byte() -> None:
    rights = other(caps=(("memory", 32e9),))
    shape = Shape("process", Requirements(min_memory=32_000_000_001), user="alice")
    told = "its token allows memory up to 32000000000, not 32000000001"
    assert rights.objection(shape) == told


def test_caps_count_gpus_too() -> None:
    rights = other(caps=(("gpus", 1.0),))
    shape = Shape("process", Requirements(gpus=GpuRequirement(count=2)), user="alice")
    assert rights.objection(shape) == "its token allows gpus up to 1, not 2"


@pytest.mark.parametrize(
    ("rules", "yes"),
    [
        (AcceptRules(users=("alice",)), True),
        (AcceptRules(users=("al*",)), True),
        (AcceptRules(users=("bob",)), False),
        (AcceptRules(owners=("aa",)), True),
        (AcceptRules(owners=("bb",)), False),
        (AcceptRules(drivers=("python",)), False),
        (AcceptRules(images=("registry/*",)), False),
        (AcceptRules(images=("alpine:*",)), True),
    ],
)
def test_the_workers_own_rules(rules: AcceptRules, yes: bool) -> None:
    shape = Shape("container", Requirements(cpu_cores=1), image="alpine:3", user="alice")
    offer = Stage(GOOD, rules).ask(shape)
    assert offer.yes is yes
    assert yes or "it" in offer.reason


def test_a_lease_ends_with_its_token() -> None:
    stage = Stage(other(expires_at=UNIX + 100))
    assert stage.ask().yes
    stage.now = 159.0
    assert not sent(stage.handle(Tick()))
    wake_at = stage.machine.wake_at
    assert wake_at is not None
    assert wake_at <= 160.0
    stage.now = 160.0
    [over] = [one for one in sent(stage.handle(Tick())) if isinstance(one, LeaseOver)]
    assert over.reason == "its token has expired"
    assert not stage.machine.grants
    assert not stage.ask().yes


def test_a_clock_that_was_set_counts() -> None:
    stage = Stage(other(expires_at=UNIX + 100))
    assert stage.ask().yes
    stage.now = 1.0
    stage.handle(WallClock(UNIX + 1000))
    messages = sent(stage.handle(Tick()))
    assert any(isinstance(one, LeaseOver) for one in messages)


def test_a_revocation_ends_what_stands_on_it_and_nothing_else() -> None:
    stage = Stage(GOOD)
    assert stage.ask().yes
    assert not sent(stage.handle(Revoked(frozenset({b"another"}))))
    messages = sent(stage.handle(Revoked(frozenset({b"first"}))))
    assert [one.reason for one in messages if isinstance(one, LeaseOver)] == [
        "its token was revoked"
    ]
    offer = stage.ask()
    assert (offer.yes, offer.reason) == (False, "its token was revoked")


def test_a_request_that_waits_for_room_does_not_outlive_its_token() -> None:
    stage = Stage(GOOD)
    everything = Request(RequestId(1), SHAPE, 8, b"token")
    [taken, *_] = sent(stage.handle(Received(SCHEDULER, everything, 0.0)))
    assert (taken.yes, taken.slots) == (True, 8)
    waits = Request(RequestId(2), SHAPE, 1, b"token")
    assert not any(
        isinstance(one, Offer) for one in sent(stage.handle(Received(SCHEDULER, waits, 0.0)))
    )
    messages = sent(stage.handle(Revoked(frozenset({b"first"}))))
    [offer] = [one for one in messages if isinstance(one, Offer)]
    assert (offer.request, offer.yes, offer.reason) == (2, False, "its token was revoked")
