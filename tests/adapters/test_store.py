"""One suite for every store: what `mycel.store.interface` promises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from mycel.core.authenticators import SECRET_BYTES
from mycel.core.identifiers import AttemptId, JobId, JobNumber, LeaseId, PeerId, fenced
from mycel.core.journal import (
    Entry,
    EntryRefused,
    JobClosed,
    JobEnded,
    JobsPruned,
    LeaseEnded,
    PartKept,
    ProfileSeen,
    TaskEnded,
    WorkerMeasured,
)
from mycel.store.errors import (
    AlreadyEnded,
    AttemptOutdated,
    DiskRefused,
    EntriesRefused,
    JournalBroken,
    OwnershipLost,
    RuleBroken,
    StoreError,
    TaskUnknown,
)
from mycel.store.interface import Lines, Result
from mycel.testing.store.memory_journal import MemoryStore

from .store_harness import (
    Harness,
    ManualClock,
    MemoryHarness,
    SqliteHarness,
    attempt_ended,
    block,
    commit,
    commit_at_once,
    commit_soundly,
    job_id,
    lease,
    opened,
    task_ended,
)
from .store_histories import expected_after, histories, job_ids, results_of


@pytest.fixture(params=["sqlite", "memory"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    made = SqliteHarness(tmp_path / "journal.db") if request.param == "sqlite" else MemoryHarness()
    yield made
    made.close()


class TestCommits:
    def test_boot_numbers_rise_over_restarts(self, harness: Harness) -> None:
        assert harness.store.raise_boot() == 1
        harness.reopen()
        assert harness.store.raise_boot() == 2
        assert harness.store.raise_boot() == 3

    def test_the_secret_is_made_once_and_does_not_show_itself(self, harness: Harness) -> None:
        secret = harness.store.secret()
        assert len(secret) == SECRET_BYTES
        assert len(set(secret)) > 8, "it is no constant"
        assert repr(secret) == str(secret) == f"{secret}" == "<secret>"
        harness.reopen()
        assert harness.store.secret() == secret

    def test_dones_come_in_the_order_of_the_calls(self, harness: Harness) -> None:
        order: list[int] = []

        def note(number: int, error: BaseException | None) -> None:
            order.append(number)

        for number in range(1, 30):
            harness.store.commit([opened(number)], partial(note, number))
        harness.settle()
        assert order == list(range(1, 30))

    def test_nothing_is_seen_before_it_is_done(self, harness: Harness) -> None:
        assert harness.store.job(job_id(1)) is None
        commit_soundly(harness, [opened(1)])
        assert harness.store.job(job_id(1)) is not None

    def test_close_finishes_what_is_under_way(self, harness: Harness) -> None:
        for number in range(1, 50):
            harness.store.commit([opened(number)], lambda error: None)
        harness.reopen()
        assert len(harness.store.restore().jobs) == 49

    def test_at_once_is_on_disk_and_in_order(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(1)])
        commit_at_once(harness, [block(1, count=2)])
        commit_at_once(harness, [task_ended(index=0)])
        commit_soundly(harness, [task_ended(index=1, attempt=101)])
        harness.reopen()
        found = harness.store.results(job_id(1), after=0, limit=10)
        assert [one.ended.index for one in found] == [0, 1]

    def test_at_once_changes_nothing_where_it_says_no(self, harness: Harness) -> None:
        group: list[Entry] = [opened(2), task_ended(1)]  # no block has that task
        assert not harness.store.commit_at_once(group)
        assert harness.store.job(job_id(2)) is None
        (error,) = commit(harness, group)
        assert [one.entry for one in refusals(error)] == [group[1]]
        commit_at_once(harness, [opened(3)])

    def test_a_closed_store_says_no(self, harness: Harness) -> None:
        harness.store.close()
        assert not harness.store.commit_at_once([opened(1)])

    def test_commit_after_close_is_refused(self, harness: Harness) -> None:
        harness.store.close()
        (error,) = commit(harness, [opened(1)])
        assert isinstance(error, JournalBroken)

    def test_highest_job_outlives_pruning(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(3)], [JobsPruned((JobNumber(3),))])
        harness.reopen()
        assert harness.store.restore().last_job == 3
        assert harness.store.restore().jobs == []


def part(offset: int, data: bytes, number: int = 1) -> PartKept:
    return PartKept(JobNumber(number), 0, AttemptId(100), offset, data)


def large_ended(value: bytes, number: int = 1) -> TaskEnded:
    bare = task_ended(number, value=b"")
    return msgspec.structs.replace(bare, value_size=len(value))


def refusals(error: BaseException | None) -> list[EntryRefused]:
    assert isinstance(error, EntriesRefused)
    return list(error.refused)


SETTING: list[Entry] = [opened(1), block(1, count=10, epoch=5)]
STRANGE: list[Entry] = [task_ended(epoch=4), attempt_ended(epoch=4)]
"""On an old owner epoch."""
BROKEN: dict[str, tuple[list[Entry], Entry, type[StoreError]]] = {
    "task beyond its block": ([], task_ended(index=10, epoch=5), TaskUnknown),
    "task of an unknown job": ([], task_ended(2, epoch=5), TaskUnknown),
    "second terminal state": (
        [task_ended(epoch=5)],
        task_ended(epoch=5, attempt=101, state="failed"),
        AlreadyEnded,
    ),
    "attempt that has ended": (
        [attempt_ended(epoch=5, attempt=100)],
        task_ended(epoch=5, attempt=100),
        AttemptOutdated,
    ),
    "attempt below an ended one": (
        [attempt_ended(epoch=5, attempt=101)],
        task_ended(epoch=5, attempt=100),
        AttemptOutdated,
    ),
    "attempt's end out of order": (
        [attempt_ended(epoch=5, attempt=101)],
        attempt_ended(epoch=5, attempt=100),
        AttemptOutdated,
    ),
    "attempt's end after the task's": (
        [task_ended(epoch=5)],
        attempt_ended(epoch=5, attempt=200),
        AlreadyEnded,
    ),
    "unknown terminal state": ([], task_ended(epoch=5, state="dreaming"), RuleBroken),
    "job opened twice": ([], opened(1), RuleBroken),
    "batch appended twice": ([], block(1, batch=0, first=10), RuleBroken),
    "overlapping batch": ([], block(1, batch=1, first=9), RuleBroken),
    "batch of a closed job": ([JobClosed(JobNumber(1))], block(1, batch=1, first=10), RuleBroken),
    "batch of an unknown job": ([], block(9), RuleBroken),
    "unknown job closed": ([], JobClosed(JobNumber(9)), RuleBroken),
    "unknown job ended": ([], JobEnded(JobNumber(9), "failed", 1.0), AlreadyEnded),
    "job ended twice": (
        [JobEnded(JobNumber(1), "failed", 1.0)],
        JobEnded(JobNumber(1), "failed", 1.0),
        AlreadyEnded,
    ),
}


class TestRules:
    @pytest.mark.parametrize("offender", STRANGE)
    def test_a_lost_block_changes_nothing_and_stops_the_journal(
        self, harness: Harness, offender: Entry
    ) -> None:
        commit_soundly(harness, SETTING)
        restored = harness.store.restore()
        told = commit(harness, [opened(77), offender, opened(78)], [opened(79)])
        assert [type(error) for error in told] == [OwnershipLost, JournalBroken]
        assert harness.store.restore() == restored
        harness.reopen()
        assert harness.store.restore() == restored
        commit_soundly(harness, [opened(80)])

    @pytest.mark.parametrize("name", BROKEN)
    def test_a_broken_rule_costs_the_entry_alone(self, harness: Harness, name: str) -> None:
        before, offender, kind = BROKEN[name]
        commit_soundly(harness, [*SETTING, *before])
        assert not harness.store.commit_at_once([offender])
        told = commit(harness, [opened(77), offender, opened(78)], [opened(79)])
        (refused,) = refusals(told[0])
        assert refused.entry == offender
        assert kind.__name__ in refused.error
        assert told[1] is None
        harness.reopen()
        numbers = [stored.opened.job for stored in harness.store.restore().jobs]
        assert numbers == [1, 77, 78, 79]
        commit_soundly(harness, [opened(80)])

    def test_groups_around_the_offender_are_kept(self, harness: Harness) -> None:
        commit_soundly(harness, SETTING)
        told = commit(
            harness,
            [task_ended(index=1, epoch=5)],
            [task_ended(index=2, epoch=5)],
            [task_ended(index=2, epoch=5)],
            [task_ended(index=3, epoch=5)],
        )
        assert [told[0], told[1], told[3]] == [None, None, None]
        assert [one.instead for one in refusals(told[2])] == [None]
        harness.reopen()
        (stored,) = harness.store.restore().blocks
        assert stored.succeeded == bytes([0b1110, 0])
        sequences = [r.sequence for r in harness.store.results(job_id(1), after=0, limit=9)]
        assert sequences == [1, 2, 3]

    def test_twice_in_one_group_counts_once(self, harness: Harness) -> None:
        commit_soundly(harness, SETTING)
        (error,) = commit(harness, [task_ended(epoch=5), task_ended(epoch=5, attempt=101)])
        assert [one.instead for one in refusals(error)] == [None]
        result = harness.store.result(job_id(1), 0)
        assert result is not None
        assert result.ended.attempt == 100

    def test_cancelled_before_anything_was_sent(self, harness: Harness) -> None:
        ended = task_ended(attempt=None, state="cancelled", epoch=5)
        commit_soundly(harness, [*SETTING, attempt_ended(epoch=5), ended])
        result = harness.store.result(job_id(1), 0)
        assert result is not None
        assert result.ended == ended

    def test_each_block_has_its_own_epoch(self, harness: Harness) -> None:
        second = block(1, batch=1, first=10, count=5, epoch=6)
        commit_soundly(harness, [*SETTING, second, task_ended(index=12, epoch=6)])
        (error,) = commit(harness, [task_ended(index=13, epoch=5)])
        assert isinstance(error, OwnershipLost)
        assert "epoch 6" in str(error)

    def test_closing_twice_and_ending_an_unknown_lease_are_harmless(self, harness: Harness) -> None:
        closed = JobClosed(JobNumber(1))
        gone = LeaseEnded(PeerId("nobody"), LeaseId(3), "expired")
        commit_soundly(harness, [*SETTING, closed, closed, gone])


UNSTORABLE: dict[str, dict[str, Any]] = {
    "exit code": {"exit_code": 1 << 63},
    "negative exit code": {"exit_code": -(1 << 63) - 1},
    "attempt": {"attempt": 1 << 63},
    "size": {"value_size": 1 << 64, "attempt": None},
    "number": {"number": 1 << 64},
    "half a surrogate pair": {"error": "\ud800"},
    "a worker's name of half a pair": {"worker": "\udfff"},
    "no text": {"error": object()},
}


class TestValues:
    @pytest.mark.parametrize("name", UNSTORABLE)
    def test_a_value_that_no_row_can_hold_costs_its_task_alone(
        self, harness: Harness, name: str
    ) -> None:
        commit_soundly(harness, [opened(1), block(1, count=3)])
        offender = msgspec.structs.replace(task_ended(index=1), **UNSTORABLE[name])
        group: list[Entry] = [task_ended(index=0), offender, task_ended(index=2)]
        group += [JobClosed(JobNumber(1)), JobEnded(JobNumber(1), "succeeded", 9.0)]
        assert not harness.store.commit_at_once(group)
        told = commit(harness, group, [opened(2)])
        (refused,) = refusals(told[0])
        assert refused.entry is offender
        assert told[1] is None
        harness.reopen()
        states = [
            (one.ended.index, one.ended.state, one.ended.reason)
            for one in harness.store.results(job_id(1), after=0, limit=9)
        ]
        assert states == [(0, "succeeded", ""), (1, "failed", "store_fault"), (2, "succeeded", "")]
        ended = harness.store.result(job_id(1), 1)
        assert ended is not None
        assert ended.ended == refused.instead
        row = harness.store.job(job_id(1))
        assert row is not None
        assert (row.state, row.succeeded, row.failed) == ("failed", 2, 1)
        commit_at_once(harness, [opened(3)])

    def test_a_later_group_knows_that_a_task_of_its_job_has_failed(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(1), block(1, count=2)])
        offender = msgspec.structs.replace(task_ended(index=1), exit_code=1 << 63)
        commit(harness, [offender])
        last: list[Entry] = [task_ended(index=0), JobClosed(JobNumber(1))]
        commit_soundly(harness, [*last, JobEnded(JobNumber(1), "succeeded", 9.0)])
        row = harness.store.job(job_id(1))
        assert row is not None
        assert row.state == "failed"

    def test_an_unstorable_job_is_left_out_with_all_that_is_its(self, harness: Harness) -> None:
        offender = msgspec.structs.replace(opened(1), name="\ud800")
        group: list[Entry] = [offender, block(1), task_ended(), opened(2), block(2)]
        (error,) = commit(harness, group)
        assert [one.entry for one in refusals(error)] == group[:3]
        assert [stored.opened.job for stored in harness.store.restore().jobs] == [2]

    @pytest.mark.parametrize("which", ["task", "attempt", "lease", "health", "profile"])
    def test_every_kind_of_entry_may_be_left_out(self, harness: Harness, which: str) -> None:
        huge: Any = 1 << 64
        offenders: dict[str, Entry] = {
            "task": msgspec.structs.replace(task_ended(), exit_code=huge),
            "attempt": msgspec.structs.replace(attempt_ended(), number=huge),
            "lease": msgspec.structs.replace(lease(), lease=huge),
            "health": WorkerMeasured(PeerId("w"), 1.0, 1.0, 1.0, huge, None),
            "profile": ProfileSeen("kind", huge, 1, 1.0),
        }
        commit_soundly(harness, [opened(1), block(1)])
        told = commit(harness, [offenders[which], opened(2)])
        assert [one.entry for one in refusals(told[0])] == [offenders[which]]
        assert harness.store.job(job_id(2)) is not None


class TestImpossibleAttempts:
    """Attempts that no boot of the journal has given: an earlier version took them over."""

    MADE_UP = 1 << 61

    def poison(self, harness: Harness) -> None:
        boot = harness.store.raise_boot()
        honest = attempt_ended(attempt=fenced(boot, 1))
        commit_soundly(harness, [opened(1), block(1), honest, attempt_ended(attempt=self.MADE_UP)])

    def test_they_are_not_restored(self, harness: Harness) -> None:
        self.poison(harness)
        harness.reopen()
        assert harness.store.raise_boot() == 2
        found = [one.attempt for one in harness.store.restore().ended_attempts]
        assert found == [fenced(1, 1)]

    @pytest.mark.parametrize("restarts", [0, 1, 4])
    def test_the_next_honest_end_counts(self, harness: Harness, restarts: int) -> None:
        self.poison(harness)
        for _ in range(restarts):
            harness.reopen()
            harness.store.raise_boot()
        again = attempt_ended(attempt=fenced(1 + restarts, 2))
        ended = task_ended(attempt=fenced(1 + restarts, 3))
        commit_soundly(harness, [again], [ended])
        harness.reopen()
        result = harness.store.result(job_id(1), 0)
        assert result is not None
        assert result.ended == ended

    def test_an_outdated_attempt_of_ours_costs_its_task_alone(self, harness: Harness) -> None:
        boot = harness.store.raise_boot()
        commit_soundly(harness, [opened(1), block(1), attempt_ended(attempt=fenced(boot, 9))])
        told = commit(harness, [task_ended(attempt=fenced(boot, 3)), opened(2)])
        (refused,) = refusals(told[0])
        assert "AttemptOutdated" in refused.error
        result = harness.store.result(job_id(1), 0)
        assert result is not None
        assert (result.ended.state, result.ended.reason) == ("failed", "store_fault")
        assert harness.store.job(job_id(2)) is not None


class TestRestart:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(groups=histories())
    def test_restored_is_what_was_committed(self, groups: list[list[Entry]]) -> None:
        expected = expected_after(groups)
        with TemporaryDirectory() as folder:
            for harness in (SqliteHarness(Path(folder) / "journal.db"), MemoryHarness()):
                try:
                    commit_soundly(harness, *groups)
                    assert harness.store.restore() == expected
                    harness.reopen()
                    assert harness.store.restore() == expected
                    for number in job_ids(groups):
                        found = harness.store.results(job_id(number), after=0, limit=1000)
                        pairs = [(result.sequence, result.ended) for result in found]
                        assert pairs == results_of(groups, number)
                finally:
                    harness.close()

    def test_arguments_of_a_finished_block_stay_on_disk(self, harness: Harness) -> None:
        appended = block(count=2, arguments=b'[[1], {"b": 2}]')
        commit_soundly(harness, [opened(), appended, task_ended(index=1)])
        assert harness.store.restore().blocks[0].appended == appended
        commit_soundly(harness, [task_ended(index=0)])
        assert harness.store.restore().blocks[0].appended.arguments == b""
        assert harness.store.arguments(job_id(1), 1) == b'{"b": 2}'

    def test_sequences_never_come_again_after_pruning(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(1), block(1), task_ended(1)])
        commit_soundly(harness, [JobsPruned((JobNumber(1),))])
        harness.reopen()
        commit_soundly(harness, [opened(2), block(2), task_ended(2)])
        result = harness.store.result(job_id(2), 0)
        assert result is not None
        assert result.sequence == 2
        assert harness.store.restore().tasks_succeeded == 2


# What a line has to quote, leave out or tell apart.
ODD_ENDS = [
    task_ended(value=b"[1,2]"),
    task_ended(value='{"text":"söme \\"quoted\\" 🌱 text"}'.encode()),
    task_ended(value=b""),
    task_ended(attempt=None, state="cancelled", value=b""),
    msgspec.structs.replace(task_ended(state="failed", value=b""), error='"\n\t\\ \x01 ü 🌱'),
    msgspec.structs.replace(task_ended(value=b"null"), digest=b"", exit_code=None),
    msgspec.structs.replace(task_ended(value=b""), state="failed", code="timeout"),
]


def line_of(result: Result) -> dict[str, object]:
    ended = result.ended
    line: dict[str, object] = {
        "index": ended.index,
        "state": ended.state,
        "exit_code": ended.exit_code,
        "error": ended.error or None,
        "digest": f"blake3:{ended.digest.hex()}" if ended.digest else None,
        "attempt": ended.number,
        "worker": ended.worker,
        "sequence": result.sequence,
    }
    if ended.value:
        line["value"] = json.loads(ended.value)
    if ended.value_size:
        line["size"] = ended.value_size
    if ended.reason or ended.code:
        line["code"] = ended.reason or ended.code
    return line


class TestLines:
    def test_lines_say_what_the_results_are(self, harness: Harness) -> None:
        ends: list[Entry] = [
            msgspec.structs.replace(one, index=i) for i, one in enumerate(ODD_ENDS)
        ]
        commit_soundly(harness, [opened(1), block(1, count=len(ends))], ends)
        lines = harness.store.lines(job_id(1), after=0, limit=100)
        found = harness.store.results(job_id(1), after=0, limit=100)
        assert [json.loads(one) for one in lines.encoded.splitlines()] == [*map(line_of, found)]
        assert (lines.count, lines.last) == (len(ends), found[-1].sequence)
        assert lines.encoded.endswith(b"\n")

    def test_a_value_in_a_file_has_its_size_told(self, harness: Harness) -> None:
        setting: list[Entry] = [opened(1), block(1), part(0, b"[1,2]")]
        commit_soundly(harness, setting, [large_ended(b"[1,2]")])
        (line,) = harness.store.lines(job_id(1), after=0, limit=9).encoded.splitlines()
        assert json.loads(line)["size"] == 5
        assert "value" not in json.loads(line)

    def test_lines_go_on_behind_the_last_one(self, harness: Harness) -> None:
        ends: list[Entry] = [task_ended(index=index) for index in range(5)]
        commit_soundly(harness, [opened(1), opened(2), block(1, count=5), block(2)], ends)
        first = harness.store.lines(job_id(1), after=0, limit=3)
        rest = harness.store.lines(job_id(1), after=first.last, limit=3)
        none = harness.store.lines(job_id(1), after=rest.last, limit=3)
        assert (first.count, rest.count, none) == (3, 2, Lines(b"", 0, rest.last))
        assert harness.store.lines(job_id(2), after=0, limit=3).count == 0
        assert harness.store.lines(job_id(9), after=0, limit=3).count == 0

    def test_large_results_come_a_few_at_a_time(self, harness: Harness) -> None:
        value = b'"%b"' % (b"x" * (1 << 20))
        ends: list[Entry] = [task_ended(index=index, value=value) for index in range(6)]
        commit_soundly(harness, [opened(1), block(1, count=6)], ends)
        first = harness.store.lines(job_id(1), after=0, limit=100)
        assert 0 < first.count < 6
        rest = harness.store.lines(job_id(1), after=first.last, limit=100)
        assert first.count + rest.count == 6
        indices = [json.loads(one)["index"] for one in (first.encoded + rest.encoded).splitlines()]
        assert indices == list(range(6))


class TestReads:
    def test_job_row_counts_its_tasks(self, harness: Harness) -> None:
        commit_soundly(
            harness,
            [opened(1), block(1, count=6), block(1, batch=1, first=6, count=4)],
            [task_ended(1, 0), task_ended(1, 1), task_ended(1, 2, state="failed")],
            [task_ended(1, 3, state="cancelled"), JobClosed(JobNumber(1))],
            [JobEnded(JobNumber(1), "cancelled", 9.5)],
        )
        row = harness.store.job(job_id(1))
        assert row is not None
        assert (row.tasks, row.succeeded, row.failed, row.cancelled) == (10, 2, 1, 1)
        assert (row.closed, row.state, row.ended_at) == (True, "cancelled", 9.5)
        assert row.opened == opened(1)

    def test_jobs_are_listed_newest_first_page_by_page(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(number) for number in range(1, 8)])
        seen: list[JobId] = []
        before: JobId | None = None
        while page := harness.store.jobs(before=before, limit=3):
            seen += [row.opened.id for row in page]
            before = seen[-1]
        assert seen == [job_id(number) for number in range(7, 0, -1)]
        assert harness.store.jobs(before=JobId("unknown"), limit=3) == []

    def test_jobs_are_found_by_prefix(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(number) for number in (10, 11, 20)])
        assert harness.store.find_jobs("0" * 24 + "1", 9) == [job_id(10), job_id(11)]
        assert harness.store.find_jobs("0" * 24, 2) == [job_id(10), job_id(11)]
        assert harness.store.find_jobs("z", 9) == []
        assert harness.store.find_jobs("%", 9) == []
        assert harness.store.find_jobs("", 9, "1") == [job_id(11)]
        assert harness.store.find_jobs("", 1, "0") == [job_id(10)]
        assert harness.store.find_jobs("z", 9, "1") == []
        assert harness.store.find_jobs("", 9, "%") == []

    def test_results_by_sequence_and_by_index(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(1), block(1), opened(2), block(2)])
        for index in (7, 3, 5):
            commit_soundly(harness, [task_ended(2, index), task_ended(1, index)])
        results = harness.store.results(job_id(1), after=0, limit=10)
        assert [r.ended.index for r in results] == [7, 3, 5]
        later = harness.store.results(job_id(1), after=results[0].sequence, limit=1)
        assert later == results[1:2]
        by_index = harness.store.results_by_index(job_id(1), first=3, limit=3)
        assert [r.ended.index for r in by_index] == [3, 5]
        assert harness.store.results(job_id(9), after=0, limit=10) == []

    def test_ends_of_all_jobs_in_commit_order(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(1), block(1, count=2), opened(2), block(2, count=1)])
        commit_soundly(harness, [task_ended(1, 1), task_ended(2, 0, state="failed")])
        commit_soundly(harness, [JobEnded(JobNumber(2), "failed", 2000.5), task_ended(1, 0)])
        ends = harness.store.ends(after=0, limit=10)
        assert [(end.sequence, end.job_id, end.index, end.job_state) for end in ends] == [
            (1, job_id(1), 1, ""),
            (2, job_id(2), 0, "failed"),
            (3, job_id(1), 0, ""),
        ]
        assert (ends[1].state, ends[1].error, ends[1].number) == ("failed", "ouch", 1)
        assert (ends[1].user, ends[1].job_name) == ("owner", "job 2")
        assert harness.store.ends(after=1, limit=1) == ends[1:2]
        assert harness.store.ends(after=0, limit=10, job=job_id(1)) == [ends[0], ends[2]]
        assert harness.store.sequences() == (0, 3)

    def test_what_was_pruned_is_known_by_its_sequence(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(1), block(1), task_ended(1)])
        commit_soundly(harness, [opened(2), block(2), task_ended(2)])
        commit_soundly(harness, [JobsPruned((JobNumber(1),))])
        assert [end.sequence for end in harness.store.ends(after=0, limit=10)] == [2]
        assert harness.store.sequences() == (1, 2)
        commit_soundly(harness, [JobsPruned((JobNumber(2),))])
        assert harness.store.sequences() == (2, 2)

    def test_an_answer_has_some_4_mib_and_at_least_one_result(self, harness: Harness) -> None:
        large = b"x" * (3 << 20)
        tasks = [task_ended(index=index, value=large) for index in range(2)]
        tasks.append(task_ended(index=2, value=large * 2))
        commit_soundly(harness, [opened(), block(), *tasks])
        after, pages = 0, 0
        while page := harness.store.results(job_id(1), after=after, limit=10):
            assert len(page) == 1
            after, pages = page[-1].sequence, pages + 1
        assert pages == 3
        assert len(harness.store.results_by_index(job_id(1), first=0, limit=3)) == 1

    def test_a_long_value_is_kept_in_parts(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(), block(), part(0, b"old"), part(3, b"er")])
        ended = large_ended(b"0123456789")
        commit_soundly(harness, [part(0, b"01234"), part(5, b"56")], [part(7, b"789"), ended])
        harness.reopen()
        result = harness.store.result(job_id(1), 0)
        assert result is not None
        assert result.ended == ended
        assert harness.store.value(job_id(1), 0, offset=0, length=99) == b"0123456789"
        assert harness.store.value(job_id(1), 0, offset=4, length=3) == b"456"
        assert harness.store.value(job_id(1), 0, offset=10, length=3) == b""
        assert harness.store.restore().file_bytes == {1: 10}

    def test_pieces_of_a_value_in_its_row(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(), block(), task_ended(value=b"0123")])
        assert harness.store.value(job_id(1), 0, offset=1, length=2) == b"12"
        assert harness.store.value(job_id(1), 7, offset=0, length=2) == b""

    def test_a_value_that_is_not_all_there_is_refused(self, harness: Harness) -> None:
        commit_soundly(harness, [opened(), block(), part(0, b"0123")])
        (error,) = commit(harness, [large_ended(b"0123456789")])
        (refused,) = refusals(error)
        assert "ValueIncomplete: of a value of 10 bytes, 4 were kept" in refused.error

    def test_ended_attempts_outlive_the_end_of_the_task(self, harness: Harness) -> None:
        attempts = [attempt_ended(attempt=5), attempt_ended(attempt=8)]
        commit_soundly(harness, [opened(), block(), *attempts, task_ended(attempt=9)])
        assert harness.store.ended_attempts(job_id(1), 0) == attempts
        assert harness.store.ended_attempts(job_id(1), 1) == []
        assert harness.store.restore().ended_attempts == []

    def test_arguments(self, harness: Harness) -> None:
        first = block(count=2, arguments=b'[ [1, "\xc3\xa9"] , null]')
        second = block(batch=1, first=2, count=1)
        commit_soundly(harness, [opened(), first, second])
        assert harness.store.arguments(job_id(1), 0) == '[1, "é"]'.encode()
        assert harness.store.arguments(job_id(1), 1) == b"null"
        assert harness.store.arguments(job_id(1), 2) == b""
        assert harness.store.arguments(job_id(2), 0) == b""

    def test_arguments_of_a_stretch_of_tasks(self, harness: Harness) -> None:
        first = block(count=2, arguments=b"[[1], [2]]")
        plain = block(batch=1, first=2, count=1)
        last = block(batch=2, first=3, count=2, arguments=b'[[4],{"a":5}]')
        commit_soundly(harness, [opened(), first, plain, last])
        every = {0: b"[1]", 1: b"[2]", 3: b"[4]", 4: b'{"a":5}'}
        found = harness.store.arguments_by_index
        assert found(job_id(1), first=0, limit=9) == every
        assert found(job_id(1), first=1, limit=3) == {1: b"[2]", 3: b"[4]"}
        assert found(job_id(1), first=5, limit=9) == {}
        assert found(job_id(2), first=0, limit=9) == {}

    def test_a_pruned_job_is_gone(self, harness: Harness) -> None:
        commit_soundly(
            harness,
            [opened(1), block(1, arguments=b"[1,2,3,4,5,6,7,8,9,0]"), opened(2), block(2)],
            [attempt_ended(1, 1), task_ended(1), task_ended(2)],
            [JobsPruned((JobNumber(1), JobNumber(55)))],
        )
        store = harness.store
        assert store.job(job_id(1)) is None
        assert store.result(job_id(1), 0) is None
        assert store.ended_attempts(job_id(1), 1) == []
        assert store.arguments(job_id(1), 1) == b""
        assert store.result(job_id(2), 0) is not None
        (error,) = commit(harness, [task_ended(1, 5)])
        assert error is not None

    def test_the_last_registration_of_a_worker_is_kept_until_it_ends(
        self, harness: Harness
    ) -> None:
        commit_soundly(harness, [lease("a", 1), lease("b", 2), lease("a", 3)])
        commit_soundly(harness, [LeaseEnded(PeerId("a"), LeaseId(1), "expired")])
        harness.reopen()
        assert harness.store.restore().leases == [lease("a", 3), lease("b", 2)]


class TestMemoryStore:
    def test_crash_drops_what_is_not_done(self) -> None:
        clock = ManualClock()
        store = MemoryStore(clock, 1.0)
        told: list[BaseException | None] = []
        store.commit([opened(1)], told.append)
        clock.run()
        store.commit([opened(2)], told.append)
        successor = store.crash()
        clock.run()
        assert told == [None]
        assert [job.opened.job for job in successor.restore().jobs] == [1]
        successor.commit([opened(2)], told.append)
        clock.run()
        assert [(c.at, c.entry) for c in successor.committed] == [
            (1.0, opened(1)),
            (3.0, opened(2)),
        ]

    def test_a_shorter_latency_does_not_overtake(self) -> None:
        clock = ManualClock()
        latencies = iter([5.0, 1.0])
        store = MemoryStore(clock, lambda: next(latencies))
        order: list[int] = []
        store.commit([opened(1)], lambda error: order.append(1))
        store.commit([opened(2)], lambda error: order.append(2))
        clock.run()
        assert order == [1, 2]

    def test_broken_disk(self) -> None:
        clock = ManualClock()
        store = MemoryStore(clock)
        told: list[BaseException | None] = []
        store.break_disk()
        store.commit([opened(1)], told.append)
        store.commit([opened(2)], told.append)
        clock.run()
        assert [type(error) for error in told] == [DiskRefused, JournalBroken]
