"""A worker checks by what right it is used, on its own, and again when that right ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mycel.core.effects import Effect, Send, WithdrawRuns
from mycel.core.events import LinkUp, Received, Revoked, SpoolLoaded, Tick, WallClock
from mycel.core.identifiers import AttemptId, JobId, JobNumber, PeerId, ShapeNumber
from mycel.core.machine_settings import WorkerSettings
from mycel.core.messages import Assign, Bundle, Introduce, Refused
from mycel.core.messages.refusals import NO_RIGHT, RULES
from mycel.core.model.resources import Capabilities, GpuRequirement, Requirements
from mycel.core.model.work import Shape, Work
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
        self.attempts = 0
        for event in (SpoolLoaded(1, {}), WallClock(UNIX), LinkUp(SCHEDULER)):
            self.handle(event)

    def handle(self, event: Any) -> list[Effect]:
        return self.machine.handle(event, self.now)

    def introduce(self, shape: Shape = SHAPE, token: bytes = b"token") -> None:
        lease = self.machine.scheduler(SCHEDULER).lease
        message = Introduce(lease, ShapeNumber(1), shape, token)
        self.handle(Received(SCHEDULER, message, self.now))

    def assign(self, count: int = 1) -> list[Effect]:
        self.attempts += count
        bundle = Bundle(
            AttemptId(self.attempts - count + 1),
            JobNumber(1),
            JobId("job"),
            1,
            Work("process"),
            list(range(count)),
            [1] * count,
            [],
        )
        lease = self.machine.scheduler(SCHEDULER).lease
        assign = Assign(lease, ShapeNumber(1), 1, [bundle])
        return self.handle(Received(SCHEDULER, assign, self.now))

    def ask(self, shape: Shape = SHAPE, token: bytes = b"token") -> Refused | None:
        """How it refuses a task; None if it takes it."""
        self.introduce(shape, token)
        return next(iter(refusals(self.assign())), None)


def sent(effects: list[Effect]) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def refusals(effects: list[Effect]) -> list[Refused]:
    return [one for one in sent(effects) if isinstance(one, Refused)]


def withdrawn(effects: list[Effect]) -> list[list[AttemptId]]:
    return [one.attempts for one in effects if isinstance(one, WithdrawRuns)]


def other(**changes: Any) -> Rights:
    return msgspec.structs.replace(GOOD, **changes)


def test_tasks_with_a_good_token_are_taken() -> None:
    assert Stage(GOOD).ask() is None
    assert Stage(other(priority_max=None, caps=())).ask() is None


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
    refused = Stage(rights).ask()
    assert refused is not None
    assert refused.code == NO_RIGHT
    assert reason in refused.reason


def test_without_a_token_nothing_is_taken() -> None:
    refused = Stage(GOOD).ask(token=b"")
    assert refused is not None
    assert "got none" in refused.reason


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
    refused = Stage(GOOD, rules).ask(shape)
    assert (refused is None) is yes
    assert refused is None or refused.code == RULES


def test_nothing_is_begun_after_the_end_of_its_token() -> None:
    stage = Stage(other(expires_at=UNIX + 100))
    assert stage.ask() is None
    stage.assign(2)
    stage.now = 159.0
    assert not withdrawn(stage.handle(Tick()))
    wake_at = stage.machine.wake_at
    assert wake_at is not None
    assert wake_at <= 160.0
    stage.now = 160.0
    effects = stage.handle(Tick())
    assert [(one.attempts, one.reason) for one in refusals(effects)] == [
        ([3], "its token has expired")
    ]
    assert withdrawn(effects) == [[1, 2]], "unless they have begun, which the driver knows"
    assert refusals(stage.assign()), "the same right is no good"
    assert stage.ask() is not None


def test_a_clock_that_was_set_counts() -> None:
    stage = Stage(other(expires_at=UNIX + 100))
    assert stage.ask() is None
    stage.now = 1.0
    stage.handle(WallClock(UNIX + 1000))
    assert withdrawn(stage.handle(Tick()))


def test_a_revocation_ends_what_stands_on_it_and_nothing_else() -> None:
    stage = Stage(GOOD)
    assert stage.ask() is None
    assert not withdrawn(stage.handle(Revoked(frozenset({b"another"}))))
    assert withdrawn(stage.handle(Revoked(frozenset({b"first"}))))
    refused = stage.ask()
    assert refused is not None
    assert (refused.code, refused.reason) == (NO_RIGHT, "its token was revoked")
