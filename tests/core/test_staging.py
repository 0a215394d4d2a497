"""Stages that are skipped piece by piece, results that are too large, keys that run out."""

from __future__ import annotations

import msgspec
import pytest

from mycel.core import messages
from mycel.core.effects import Effect, Record, Reply, Send
from mycel.core.errors import TooLong
from mycel.core.events import CancelTask, Event, ReadJob, Received, Restart, Submit, Tick, WallClock
from mycel.core.identifiers import JobId, PeerId, RequestId, ulid
from mycel.core.invariants import check_scheduler
from mycel.core.journal import Entry, JobEnded, TaskEnded
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.model.derivation import StagePlan, derive
from mycel.core.model.jobs import Group, Specification
from mycel.core.model.resources import Capabilities, Ledger, Requirements
from mycel.core.model.stages import HANDED_BYTES_MAX, Handed, Policy, Stage
from mycel.core.model.work import Work
from mycel.core.scheduler import Scheduler
from mycel.core.scheduler.clients.client_requests import KEY_SECONDS
from mycel.core.scheduler.tasks.stage_progress import SKIP_CHUNK
from mycel.core.views import JobView, SubmittedView
from mycel.testing.store.memory_book import MemoryBook

from .keys import SECRET, keyed

JOB = ulid(1, bytes(10))
WORKER = PeerId("worker")
MACHINE = Capabilities(cpu_cores=1.0, memory=1 << 30, drivers=("python",))
SPECIFICATION = Specification(Work("python", function="a:b"), Requirements(cpu_cores=1.0))


class Bench:
    """A scheduler, all that it wanted done, and one worker if it is asked for."""

    def __init__(self) -> None:
        self.machine = Scheduler(
            SchedulerSettings(), digest=lambda value: b"", keyed=keyed, random=lambda: 0.5
        )
        self.effects: list[Effect] = []
        self.tell(Restart(2, MemoryBook().restored(), SECRET), 0.0)
        self.tell(WallClock(1000.0), 0.0)

    def tell(self, event: Event, now: float = 1.0) -> list[Effect]:
        effects = self.machine.handle(event, now)
        check_scheduler(self.machine)
        self.effects += effects
        return effects

    def submit(self, stages: tuple[Stage, ...], *counts: int) -> list[Effect]:
        plans = tuple(StagePlan(SPECIFICATION, count) for count in counts)
        derived = derive(stages, plans)
        return self.tell(
            Submit(RequestId(1), JOB, "", "owner", SPECIFICATION, 0, b"", True, derived=derived)
        )

    def come(self) -> None:
        free = Ledger(MACHINE).free
        register = messages.Register(
            messages.WIRE_VERSION, 1, 0.0, "worker", MACHINE, free, (), [], [], []
        )
        self.tell(Received(WORKER, register, 0.5), 0.5)

    def run(self, sent: list[Effect], value: bytes) -> None:
        """The worker takes the job's first task, and gives this result."""
        [bundle] = assignment(sent).bundles
        outcome = messages.Outcome(bundle.first, bundle.job, 0, "succeeded", value)
        self.tell(Received(WORKER, messages.Results(1.0, [outcome], []), 1.0))

    def run_through(self) -> int:
        """Lets time pass as long as something is due now; how often that was."""
        turns = 0
        while self.machine.wake_at is not None and self.machine.wake_at <= 1.0:
            self.tell(Tick())
            turns += 1
        return turns

    @property
    def entries(self) -> list[Entry]:
        records = [effect for effect in self.effects if isinstance(effect, Record)]
        return [entry for record in records for entry in record.entries]

    def job(self) -> JobView:
        self.tell(ReadJob(RequestId(9), JOB))
        answer = [e for e in self.effects if isinstance(e, Reply) and e.request == 9][-1].answer
        assert isinstance(answer, JobView)
        return answer


def assignment(effects: list[Effect]) -> messages.Assign:
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    [assign] = [message for message in sent if isinstance(message, messages.Assign)]
    return assign


def test_a_large_stage_is_skipped_in_pieces() -> None:
    bench = Bench()
    many = 3 * SKIP_CHUNK + 7
    bench.submit((Stage("a"), Stage("b", needs=(0,)), Stage("c", needs=(1,))), 1, many, 2)
    assert bench.machine.state.queued == many + 3
    assert [stage.state for stage in bench.job().stages] == ["running", "waiting", "waiting"]
    bench.tell(CancelTask(RequestId(2), JOB, 0))
    assert bench.job().state == "running"
    assert bench.run_through() >= 3
    ended = [entry for entry in bench.entries if isinstance(entry, TaskEnded)]
    assert len(ended) == many + 3
    assert {entry.reason for entry in ended[1:]} == {"dependency_failed"}
    assert {entry.error for entry in ended[1:]} == {"a task of stage 'a' was cancelled"}
    assert [e.state for e in bench.entries if isinstance(e, JobEnded)] == ["cancelled"]
    assert bench.machine.state.queued == 0


def test_failures_that_are_ignored_do_not_count_for_the_job() -> None:
    bench = Bench()
    bench.submit((Stage("a", policy=Policy.IGNORE),), 1)
    bench.tell(CancelTask(RequestId(2), JOB, 0))
    assert [e.state for e in bench.entries if isinstance(e, JobEnded)] == ["succeeded"]


def test_results_that_are_too_large_to_hand_on_stop_who_asks_for_them() -> None:
    bench = Bench()
    bench.come()
    asks = Stage("asks", needs=(0,), wants=(0,))
    sent = bench.submit((Stage("a", hands_on=True), asks, Stage("does not", needs=(0,))), 1, 1, 1)
    bench.run(sent, b'"' + b"x" * HANDED_BYTES_MAX + b'"')
    bench.run_through()
    assert [stage.state for stage in bench.job().stages] == ["succeeded", "cancelled", "running"]
    skipped = [e for e in bench.entries if isinstance(e, TaskEnded)][-1]
    assert (skipped.index, skipped.reason) == (1, "dependency_failed")
    assert "more than 256 KiB" in skipped.error


def test_a_key_stands_for_its_job_for_a_day() -> None:
    bench = Bench()

    def submitted(request: int, now: float) -> tuple[JobId, bool]:
        job = ulid(request, bytes(10))
        event = Submit(
            RequestId(request), job, "", "owner", SPECIFICATION, 1, b"", True, "key", b"body"
        )
        [answer] = [e.answer for e in bench.tell(event, now) if isinstance(e, Reply)]
        assert isinstance(answer, SubmittedView)
        return answer.job.job_id, answer.again

    first = ulid(1, bytes(10))
    assert submitted(1, 1.0) == (first, False)
    assert submitted(2, 1.0 + KEY_SECONDS) == (first, True)
    assert submitted(3, 2.0 + KEY_SECONDS) == (ulid(3, bytes(10)), False)


REPEATED = ["${needs.a[0]}" * 100]


def repeating(*arguments: list[str]) -> Bench:
    """Stage `a` has given a long result, which the tasks of `b` ask for."""
    bench = Bench()
    bench.come()
    stages = (Stage("a", hands_on=True), Stage("b", needs=(0,), wants=(0,)))
    asking = StagePlan(SPECIFICATION, len(arguments), msgspec.json.encode(arguments))
    derived = derive(stages, (StagePlan(SPECIFICATION), asking))
    sent = bench.tell(
        Submit(RequestId(1), JOB, "", "owner", SPECIFICATION, 0, b"", True, derived=derived)
    )
    bench.run(sent, b'"' + b"x" * 200_000 + b'"')
    return bench


def test_results_that_a_stage_repeats_without_end_fail_its_tasks() -> None:
    bench = repeating(REPEATED)
    [first, second] = [entry for entry in bench.entries if isinstance(entry, TaskEnded)]
    assert (first.state, second.state) == ("succeeded", "failed")
    assert "million characters" in second.error
    assert bench.job().state == "failed"


def test_tasks_that_cannot_be_sent_keep_no_others_waiting() -> None:
    bench = repeating(*[REPEATED] * 5, ["${needs.a[0]}"])
    bench.run_through()
    [out] = bench.machine.state.attempts.values()
    assert out.index == 6
    assert bench.job().failed == 5


def test_a_command_that_is_too_long_fails_each_task_by_an_error_of_its_own() -> None:
    """One that is kept and raised again holds the frames of everybody who has met it."""
    work = Work("process", command=("echo", *REPEATED))
    specification = Specification(work, Requirements(cpu_cores=1.0))
    group = Group.of(specification, "owner")
    handed = Handed({"a": ["x" * 200_000]})
    met = []
    for _ in range(2):
        with pytest.raises(TooLong) as caught:
            handed.work(group)
        met.append(caught.value)
    assert met[0] is not met[1]
