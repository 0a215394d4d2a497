"""The agent of a cluster: which jobs it takes, what it promises, what a lease means to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from mycel.core.agent import agent_effects as effects
from mycel.core.agent import agent_events as events
from mycel.core.agent.accept_rules import ACCEPT_RULES, Room, WaitingJob
from mycel.core.agent.agent_machine import AgentMachine
from mycel.core.agent.agent_settings import AgentSettings
from mycel.core.agent.attempts import (
    AttemptName,
    AttemptState,
    Cause,
    OutcomeState,
    is_attempt_name,
)
from mycel.core.agent.batch_jobs import (
    BatchEntry,
    BatchFailure,
    BatchState,
    Capacity,
    ClusterJob,
    Estimate,
    EtaSource,
)
from mycel.core.agent.bids import Bid, WaitHistory, bid_of

A = AttemptName("a")
JOB = ClusterJob(command=("true",))
IDLE = Capacity(idle_cores=16, cores=16, pending=0)
_Effect = TypeVar("_Effect")


class Stage:
    """A machine that its origin has confirmed, and a batch system that has answered once."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1000.0
        self.looks = 0
        self.machine = AgentMachine(
            AgentSettings(**settings), ACCEPT_RULES["fifo"], boot=1, now=self.now
        )
        (listing,) = self.tell(events.Connected(), effects.Listing)
        self.tell(events.Confirmed(listing.number, frozenset()), effects.Effect)

    def tell(self, event: events.Event, kind: Any) -> list[Any]:
        found = self.machine.handle(event, self.now)
        self.looks = max([self.looks, *(e.look for e in found if isinstance(e, effects.SeeQueue))])
        return [effect for effect in found if isinstance(effect, kind)]

    def see_queue(self, *entries: BatchEntry, kind: Any = effects.Effect) -> list[Any]:
        self.now += 100
        self.tell(events.Renewed(self.now), effects.Effect)
        return self.tell(events.QueueSeen(self.looks, entries, IDLE), kind)

    def assign(self, job: ClusterJob = JOB) -> list[effects.Effect]:
        self.tell(events.Assigned(A, job), effects.Effect)
        return self.see_queue()

    @property
    def state(self) -> AttemptState:
        (attempt,) = self.machine.attempts
        return attempt.state


def test_the_intent_is_recorded_before_the_submission() -> None:
    found = Stage().assign()
    record, submit = (
        [isinstance(one, kind) for one in found].index(True)
        for kind in (effects.Record, effects.Submit)
    )
    assert record < submit


def test_what_the_batch_system_refuses_goes_back_behind_a_fence() -> None:
    stage = Stage()
    stage.assign()
    refused = events.SubmitAnswered(A, BatchFailure.REFUSED, "no such partition")
    assert stage.tell(refused, effects.Fence)
    (report,) = stage.tell(events.FenceUp(A, frozenset({0})), effects.Report)
    assert report.outcome.state is OutcomeState.RETURNED
    assert report.outcome.cause is Cause.REFUSED
    assert report.outcome.text == "no such partition"


def test_what_waits_for_ever_in_the_queue_goes_back() -> None:
    stage = Stage()
    stage.assign()
    stage.tell(events.SubmitAnswered(A), effects.Effect)
    stage.see_queue()
    entry = BatchEntry(A, 0, BatchState.HOPELESS, "7", "PartitionTimeLimit")
    assert stage.see_queue(entry, kind=effects.Fence)
    found = stage.tell(events.FenceUp(A, frozenset({0})), effects.Effect)
    assert any(isinstance(one, effects.CancelJobs) for one in found)
    (report,) = [one for one in found if isinstance(one, effects.Report)]
    assert (report.outcome.cause, report.outcome.text) == (Cause.HOPELESS, "PartitionTimeLimit")


def test_nothing_is_submitted_before_the_origin_has_confirmed() -> None:
    machine = AgentMachine(AgentSettings(), ACCEPT_RULES["fifo"], boot=1, now=0.0)
    machine.handle(events.Assigned(A, JOB), 0.0)
    found = machine.handle(events.QueueSeen(1, (), IDLE), 1.0)
    assert not any(isinstance(one, effects.Submit) for one in found)


def test_a_silent_origin_ends_the_lease_and_what_has_not_begun() -> None:
    stage = Stage()
    stage.assign()
    stage.tell(events.SubmitAnswered(A), effects.Effect)
    stage.now += AgentSettings().lease_seconds + 1
    assert stage.tell(events.Ticked(), effects.Fence)
    stage.tell(events.FenceUp(A, frozenset()), effects.Effect)
    assert stage.state is AttemptState.SUBMITTED, "it has begun, and goes on"


def test_an_old_renewal_extends_nothing() -> None:
    stage = Stage()
    stage.assign()
    sent_at = stage.now
    stage.now += AgentSettings().lease_seconds + 1
    assert stage.tell(events.Renewed(sent_at), effects.Fence)


def test_what_was_given_away_meanwhile_is_killed_and_not_reported() -> None:
    stage = Stage()
    stage.assign()
    stage.tell(events.SubmitAnswered(A), effects.Effect)
    (listing,) = stage.tell(events.Connected(), effects.Listing)
    assert listing.attempts == (A,)
    assert stage.tell(events.Confirmed(listing.number, frozenset()), effects.CancelJobs)
    found = stage.tell(events.FenceUp(A, frozenset({0})), effects.Effect)
    assert not any(isinstance(one, effects.Report) for one in found)
    assert not list(stage.machine.attempts)


def test_a_late_answer_to_an_old_listing_changes_nothing() -> None:
    stage = Stage()
    (old,) = stage.tell(events.Connected(), effects.Listing)
    stage.assign()
    stage.tell(events.Connected(), effects.Listing)
    stage.tell(events.Confirmed(old.number, frozenset()), effects.Effect)
    assert list(stage.machine.attempts)


def test_an_ended_attempt_is_not_started_again_by_a_late_message() -> None:
    stage = Stage()
    stage.assign(ClusterJob(command=("true",)))
    stage.tell(events.SubmitAnswered(A, BatchFailure.REFUSED, "no"), effects.Effect)
    stage.tell(events.FenceUp(A, frozenset({0})), effects.Effect)
    stage.tell(events.Acknowledged(A), effects.Effect)
    stage.tell(events.Assigned(A, JOB), effects.Effect)
    assert not list(stage.machine.attempts)


def waiting(*jobs: ClusterJob) -> Sequence[WaitingJob]:
    return [WaitingJob(AttemptName(f"j{n}"), job, 0.0) for n, job in enumerate(jobs)]


def sized(cores: int, **more: int) -> ClusterJob:
    return ClusterJob(command=("x",), cores_per_task=cores, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "picked"),
    [("fifo", ["j0", "j1"]), ("priority", ["j2", "j0"]), ("fits-now", ["j1", "j2"])],
)
def test_rules_pick_by_order_importance_or_what_fits(rule: str, picked: list[str]) -> None:
    jobs = waiting(sized(8), sized(1), sized(2, priority=5))
    assert list(ACCEPT_RULES[rule](jobs, Room(elements=2, idle_cores=4))) == picked


def test_an_array_needs_room_for_all_its_elements() -> None:
    jobs = waiting(sized(1, elements=5), sized(1))
    assert list(ACCEPT_RULES["fifo"](jobs, Room(4, 99))) == []
    assert list(ACCEPT_RULES["fits-now"](jobs, Room(4, 99))) == ["j1"]


def history(*waits: float) -> WaitHistory:
    made = WaitHistory()
    for wait in waits:
        made.note(wait)
    return made


BUSY = Capacity(idle_cores=0, cores=10, pending=4)


@pytest.mark.parametrize(
    ("estimate", "past", "capacity", "expected"),
    [
        (Estimate(30.0), (), BUSY, Bid(30.0, EtaSource.BATCH_SYSTEM)),
        (Estimate(None, "too big"), (), BUSY, Bid(None, EtaSource.BATCH_SYSTEM, "too big")),
        (None, (), IDLE, Bid(0.0, EtaSource.QUEUE_LENGTH)),
        (None, (9, 1, 5, 700, 6), BUSY, Bid(6.0, EtaSource.HISTORY)),
        (None, (9,), BUSY, Bid(1800.0, EtaSource.QUEUE_LENGTH)),
        (None, (9,), None, Bid(None, None, "the batch system does not answer")),
    ],
)
def test_a_bid_says_where_its_time_comes_from(
    estimate: Estimate | None, past: tuple[float, ...], capacity: Capacity | None, expected: Bid
) -> None:
    assert bid_of(JOB, estimate, history(*past), capacity) == expected


def test_too_many_questions_are_answered_without_the_batch_system() -> None:
    stage = Stage(questions_max=1)
    assert not stage.tell(events.Asked(1, JOB), effects.AnswerBid)
    (answer,) = stage.tell(events.Asked(2, JOB), effects.AnswerBid)
    assert answer.question == 1
    (answer,) = stage.tell(events.Estimated(2, Estimate(3.0)), effects.AnswerBid)
    assert answer.bid.starts_in == 3.0
    assert not stage.tell(events.Estimated(2, Estimate(3.0)), effects.AnswerBid), "asked once"


@pytest.mark.parametrize("text", ["", "-a", "a.b", "a/b", "..", "a b", "é", "a" * 101, "a\n"])
def test_names_that_could_leave_the_folder_are_none(text: str) -> None:
    assert not is_attempt_name(text)
