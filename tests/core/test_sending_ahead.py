"""A task that nobody has been promised yet leaves while its job is being written to the disk."""

from __future__ import annotations

from typing import TypeVar

import pytest

from mycel.core.effects import Effect, Record, Send, SendAhead
from mycel.core.events import Received, Restart, Submit
from mycel.core.identifiers import LeaseId, PeerId, RequestId, ulid
from mycel.core.journal import Restored
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.messages import (
    WIRE_VERSION,
    Assign,
    ControlMessage,
    HeldAttempt,
    Message,
    Outcome,
    Register,
    Results,
    Returned,
    Welcome,
    WorkMessage,
)
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Capabilities, Ledger, Requirements
from mycel.core.model.work import Work
from mycel.core.scheduler import Scheduler

from .keys import SECRET, keyed

WORKER = PeerId("worker")
Kind = TypeVar("Kind", bound=Message)
LEASE = LeaseId(7)
MACHINE = Capabilities(cpu_cores=1.0, memory=1 << 30, drivers=("process",))
WORK = Specification(Work("process"), Requirements(cpu_cores=1.0))


class Story:
    def __init__(self, boot: int = 1) -> None:
        self.scheduler = Scheduler(
            SchedulerSettings(), digest=lambda value: b"", keyed=keyed, random=lambda: 0.5
        )
        empty = Restored([], [], [], [], [], 0, 0, 0, 0)
        self.scheduler.handle(Restart(boot, empty, SECRET), 0.0)
        self.jobs = 0

    def register(self, held: list[HeldAttempt], outcomes: list[Outcome]) -> list[Effect]:
        free = Ledger(MACHINE).free
        return self.say(
            Register(WIRE_VERSION, 1, 0.0, "worker", MACHINE, free, (), [], held, outcomes)
        )

    def say(self, message: WorkMessage | ControlMessage) -> list[Effect]:
        return self.scheduler.handle(Received(WORKER, message, 0.0), 0.0)

    def submit(self, count: int = 1) -> list[Effect]:
        self.jobs += 1
        job = ulid(self.jobs, bytes(10))
        request = RequestId(self.jobs)
        return self.scheduler.handle(
            Submit(request, job, "", "owner", WORK, count, b"", close=True), 0.0
        )

    def done(self, assign: Assign) -> list[Effect]:
        """The first task of that assignment has succeeded."""
        bundle = assign.bundles[0]
        outcome = Outcome(bundle.first, bundle.job, bundle.indices[0], "succeeded")
        return self.say(Results(0.0, [outcome], []))

    def with_proven_registration(self) -> Story:
        """A worker has come, and has run a task."""
        self.register([], [])
        self.done(self.first_assignment())
        return self

    def first_assignment(self) -> Assign:
        effects = self.submit()
        [assign] = messages(effects, Assign)
        assert not ahead(effects), "its registration may not be in the journal yet"
        return assign


def messages(effects: list[Effect], kind: type[Kind]) -> list[Kind]:
    sent = [one.message for one in effects if isinstance(one, (Send, SendAhead))]
    return [message for message in sent if isinstance(message, kind)]


def ahead(effects: list[Effect]) -> list[object]:
    return [one.message for one in effects if isinstance(one, SendAhead)]


def test_under_a_registration_that_is_journalled_it_goes_ahead_of_its_job() -> None:
    effects = Story().with_proven_registration().submit()
    assert any(isinstance(effect, Record) for effect in effects)
    assert ahead(effects) == messages(effects, Assign) != []


def test_what_has_waited_goes_after_what_was_written_since() -> None:
    story = Story().with_proven_registration()
    [assign] = messages(story.submit(count=4), Assign)
    effects = story.done(assign)
    assert messages(effects, Assign)
    assert not ahead(effects), "its job is known, and may have been cancelled in part"


def test_what_comes_back_is_not_sent_ahead_again() -> None:
    story = Story().with_proven_registration()
    [assign] = messages(story.submit(), Assign)
    effects = story.say(Returned([assign.bundles[0].first], []))
    assert messages(effects, Assign)
    assert not ahead(effects)


@pytest.mark.parametrize("is_running", [True, False])
def test_a_later_boot_takes_it_for_none_of_its_own(is_running: bool) -> None:
    """Its job was never written. Clients have submitted as many others since."""
    [lost] = messages(Story(boot=1).with_proven_registration().submit(), Assign)
    [bundle] = lost.bundles
    after = Story(boot=2)
    after.submit()
    after.submit()
    held = HeldAttempt(bundle.first, bundle.job, bundle.indices[0], LEASE, 1, None)
    outcome = Outcome(bundle.first, bundle.job, bundle.indices[0], "succeeded")
    effects = after.register(*(([held], []) if is_running else ([], [outcome])))
    [welcome] = messages(effects, Welcome)
    assert welcome.kill == ([held.attempt] if is_running else [])
    state = after.scheduler.state
    assert state.queued + len(state.attempts) == 2, "its own tasks are still there"
    assert after.scheduler.state.results_refused == (0 if is_running else 1)
