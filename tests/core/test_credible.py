"""What a worker says of an attempt's end is believed as far as it can be."""

from __future__ import annotations

from typing import Any

import pytest

from mycel.core import messages
from mycel.core.effects import Effect, Send
from mycel.core.events import Received
from mycel.core.identifiers import AttemptId, JobNumber, LeaseId, PeerId, fenced
from mycel.core.journal import AttemptEnded, TaskEnded
from mycel.core.model.resources import Ledger
from mycel.core.model.stages import Stage
from tests.core.keys import proof
from tests.core.test_staging import JOB, MACHINE, WORKER, Bench, assignment


def told(**outcome: Any) -> Bench:
    """A worker that was sent one task has said this of it."""
    bench = Bench()
    bench.come()
    sent = bench.submit((Stage("a"),), 1)
    [bundle] = assignment(sent).bundles
    said = messages.Outcome(bundle.first, bundle.job, 0, **({"state": "succeeded"} | outcome))
    bench.tell(Received(WORKER, messages.Results(1.0, [said], []), 1.0))
    return bench


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        ({"value": b"{what"}, "the result is not JSON"),
        ({"value": b'"\xff"'}, "the result is not JSON"),
        ({"value": b"[" * 101 + b"]" * 101}, "nested more than 100 levels"),
        ({"value": b"[" * 20_000}, "nested more than 100 levels"),
        ({"value": b"1", "digest": b"another"}, "digest"),
        ({"state": "who knows"}, "does not say how it ended"),
    ],
)
def test_what_cannot_be_is_the_workers_fault(outcome: dict[str, Any], error: str) -> None:
    bench = told(**outcome)
    [attempt] = [entry for entry in bench.entries if isinstance(entry, AttemptEnded)]
    assert attempt.state == "failed"
    assert error in attempt.error
    assert not [entry for entry in bench.entries if isinstance(entry, TaskEnded)]


@pytest.mark.parametrize(
    ("started_at", "ended_at", "taken_for"),
    [
        (0.25, 0.75, (1000.25, 1000.75)),
        (-1e18, 0.75, (None, 1001.0)),
        (0.75, 0.25, (None, 1001.0)),
        (1e18, 1e18, (1001.0, 1001.0)),
        (-1e18, -1e18, (1001.0, 1001.0)),
        (0.75, 1e8, (1000.75, 1001.0)),
    ],
)
def test_no_client_is_shown_a_time_that_cannot_be(
    started_at: float, ended_at: float, taken_for: tuple[float | None, float]
) -> None:
    bench = told(value=b"1", started_at=started_at, ended_at=ended_at)
    [ended] = [entry for entry in bench.entries if isinstance(entry, TaskEnded)]
    assert ended.state == "succeeded"
    assert (ended.started_at, ended.ended_at) == taken_for


def test_a_result_that_waited_for_the_scheduler_did_not_run_so_long() -> None:
    bench = Bench()
    bench.submit((Stage("a"),), 1)
    [job] = bench.machine.state.jobs
    attempt = AttemptId(fenced(1, 1))
    kept = messages.Outcome(
        attempt,
        job,
        0,
        "succeeded",
        b"1",
        started_at=100.0,
        ended_at=102.0,
        authenticator=proof(attempt, job, JOB, 0, WORKER),
    )
    register = messages.Register(
        messages.WIRE_VERSION, 1, 700.0, "", MACHINE, Ledger(MACHINE).free, (), [], [], [kept]
    )
    bench.tell(Received(WORKER, register, 900.0), 900.0)
    [ended] = [entry for entry in bench.entries if isinstance(entry, TaskEnded)]
    assert (ended.started_at, ended.ended_at) == (1300.0, 1302.0)


def reports(bench: Bench, peer: PeerId, attempt: int, job: JobNumber, index: int) -> list[Effect]:
    """A worker that comes says that it has this attempt."""
    shown = proof(attempt, job, JOB, index, peer)
    held = messages.HeldAttempt(AttemptId(attempt), job, index, LeaseId(9), 1, None, shown)
    register = messages.Register(
        messages.WIRE_VERSION, 1, 0.0, "", MACHINE, Ledger(MACHINE).free, (), [], [held], []
    )
    return bench.tell(Received(peer, register, 1.0))


def killed(effects: list[Effect]) -> list[AttemptId]:
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    [welcome] = [message for message in sent if isinstance(message, messages.Welcome)]
    return welcome.kill


def test_nobody_has_a_task_of_a_stage_that_has_not_started() -> None:
    bench = Bench()
    bench.submit((Stage("a"), Stage("b", needs=(0,))), 1, 1)
    [job] = bench.machine.state.jobs
    attempt = fenced(1, 1)
    assert killed(reports(bench, WORKER, attempt, job, 1)) == [attempt]
    assert [stage.state for stage in bench.job().stages] == ["running", "waiting"]


def test_nobody_takes_a_task_by_the_attempt_of_another() -> None:
    bench = Bench()
    bench.come()
    bench.submit((Stage("a"),), 1)
    [(attempt, out)] = bench.machine.state.attempts.items()
    other = PeerId("another")
    assert killed(reports(bench, other, attempt, out.job.number, 1)) == [attempt]
    assert bench.machine.state.attempts[attempt] is out
