"""Deadlines: what waits fails when one comes, and what comes too late is refused."""

from __future__ import annotations

from mycel.core.effects import Effect, Record, Reply
from mycel.core.errors import Conflict, Unprocessable
from mycel.core.events import Append, Event, Restart, Submit, Tick, WaitJob, WallClock
from mycel.core.identifiers import RequestId, ulid
from mycel.core.invariants import check_scheduler
from mycel.core.journal import Entry, JobEnded, TaskEnded
from mycel.core.machine_settings import SchedulerSettings
from mycel.core.model.jobs import Specification
from mycel.core.model.resources import Requirements
from mycel.core.model.work import Work
from mycel.core.scheduler import Scheduler
from mycel.core.views import JobView
from mycel.testing.store.memory_book import MemoryBook

from .keys import SECRET, keyed

EPOCH = 1_000_000.0
JOB = ulid(1, bytes(10))


class Stage:
    """A scheduler without workers, and all that it wanted done."""

    def __init__(self) -> None:
        self.machine = Scheduler(
            SchedulerSettings(), digest=lambda value: value, keyed=keyed, random=lambda: 0.5
        )
        self.effects: list[Effect] = []
        self.tell(Restart(1, MemoryBook().restored(), SECRET), 0.0)
        self.tell(WallClock(EPOCH), 0.0)

    def tell(self, event: Event, now: float) -> None:
        self.effects += self.machine.handle(event, now)
        check_scheduler(self.machine)

    def submit(self, deadline_at: float | None, count: int = 1, close: bool = True) -> None:
        specification = Specification(
            Work("process", command=("true",)), Requirements(), deadline_at=deadline_at
        )
        submit = Submit(RequestId(1), JOB, "", "owner", specification, count, b"", close)
        self.tell(submit, 1.0)

    def run_until(self, moment: float) -> None:
        while (due := self.machine.wake_at) is not None and due <= moment:
            self.tell(Tick(), due)

    @property
    def entries(self) -> list[Entry]:
        records = [effect for effect in self.effects if isinstance(effect, Record)]
        return [entry for record in records for entry in record.entries]

    @property
    def ended(self) -> list[TaskEnded]:
        return [entry for entry in self.entries if isinstance(entry, TaskEnded)]

    def answer(self, request: int) -> object:
        [found] = [e for e in self.effects if isinstance(e, Reply) and e.request == request]
        return found.answer


def test_what_waits_fails_at_the_deadline_and_not_before() -> None:
    stage = Stage()
    stage.submit(EPOCH + 10.0, count=1200)
    stage.tell(WaitJob(RequestId(2), JOB), 1.0)
    stage.run_until(9.9)
    assert not stage.ended
    stage.run_until(10.0)
    assert [one.index for one in stage.ended] == list(range(1200))
    assert {(one.state, one.reason) for one in stage.ended} == {("failed", "deadline")}
    assert any(isinstance(entry, JobEnded) for entry in stage.entries)
    answer = stage.answer(2)
    assert isinstance(answer, JobView)
    assert answer.state == "failed"


def test_a_large_job_fails_piece_by_piece() -> None:
    stage = Stage()
    stage.submit(EPOCH + 10.0, count=1200)
    stage.tell(Tick(), 10.0)
    assert 0 < len(stage.ended) < 1200


def test_a_deadline_in_the_past_is_refused() -> None:
    stage = Stage()
    stage.submit(EPOCH)
    assert isinstance(stage.answer(1), Unprocessable)
    assert not stage.entries


def test_no_batch_is_taken_after_the_deadline() -> None:
    stage = Stage()
    stage.submit(EPOCH + 5.0, count=0, close=False)
    stage.tell(Append(RequestId(2), JOB, 0, 3, b""), 6.0)
    answer = stage.answer(2)
    assert isinstance(answer, Conflict)
    assert "deadline" in str(answer)


def test_a_clock_that_is_set_moves_the_deadline_with_it() -> None:
    stage = Stage()
    stage.submit(EPOCH + 100.0)
    stage.tell(WallClock(EPOCH + 90.0), 2.0)
    stage.run_until(9.9)
    assert not stage.ended
    stage.run_until(10.0)
    assert len(stage.ended) == 1
    late = Stage()
    late.submit(EPOCH + 10.0)
    late.tell(WallClock(EPOCH - 50.0), 2.0)
    late.run_until(59.0)
    assert not late.ended
    late.run_until(60.0)
    assert len(late.ended) == 1
