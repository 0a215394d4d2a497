"""Checkpoints: what both stores promise, and how they travel in spite of lost links."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from mycel.core.effects import CheckpointAnswered
from mycel.core.events import Event, RunCheckpointed, RunsProgressed, RunWantsCheckpoint
from mycel.core.identifiers import AttemptId
from mycel.core.messages import CheckpointPart, CheckpointTaken
from mycel.roles.worker.report_relay import AGAIN_SECONDS, PROGRESS_SECONDS, ReportRelay
from mycel.store.checkpoints import (
    CHECKPOINT_BYTES_MAX,
    PART_BYTES,
    CheckpointFiles,
    Checkpoints,
    Found,
    MemoryCheckpoints,
    Taken,
)

RUN = AttemptId(7)
versions = itertools.count(1)


class PendingInput:
    """A store whose answers are waited for."""

    def __init__(self, store: Checkpoints, answers: queue.SimpleQueue[Callable[[], None]]) -> None:
        self.store = store
        self._answers = answers
        self._got: list[Any] = []

    def keep(self, part: CheckpointPart, index: int = 0) -> Taken:
        self.store.keep("job", index, part, self._got.append)
        found = self._wait()
        assert isinstance(found, Taken)
        return found

    def keep_all(self, data: bytes, index: int = 0) -> None:
        version = next(versions)
        parts = [part_of(data, offset, version) for offset in range(0, len(data), PART_BYTES)]
        assert [self.keep(part, index).is_kept for part in parts][-1]

    def read(self, index: int = 0, offset: int = 0) -> Found:
        self.store.read("job", index, offset, self._got.append)
        found = self._wait()
        assert isinstance(found, Found)
        return found

    def _wait(self) -> object:
        while not self._got:
            self._answers.get(timeout=20)()
        return self._got.pop()


def part_of(data: bytes, offset: int, version: int) -> CheckpointPart:
    digest = blake3(data).digest()
    piece = data[offset : offset + PART_BYTES]
    return CheckpointPart(RUN, version, offset, len(data), digest, piece)


@pytest.fixture(params=["files", "memory"])
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PendingInput]:
    answers: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    if request.param == "memory":
        yield PendingInput(MemoryCheckpoints(), answers)
        return
    files = CheckpointFiles(tmp_path / "journal.db", answers.put)
    yield PendingInput(files, answers)
    files.close()


BIG = bytes(range(256)) * (PART_BYTES // 256) + b"and the rest"


def test_nothing_is_found_before_there_is_something(asked: PendingInput) -> None:
    assert asked.read() == Found()


def test_the_whole_comes_back_piece_by_piece(asked: PendingInput) -> None:
    asked.keep_all(BIG)
    first = asked.read()
    rest = asked.read(offset=len(first.data))
    assert first.data + rest.data == BIG
    assert (first.size, first.digest) == (len(BIG), blake3(BIG).digest())


def test_the_latest_counts_once_it_is_whole(asked: PendingInput) -> None:
    asked.keep_all(b"first")
    version = next(versions)
    assert asked.keep(part_of(BIG, 0, version)) == Taken(PART_BYTES, is_kept=False)
    assert asked.read().data == b"first"
    assert asked.keep(part_of(BIG, PART_BYTES, version)).is_kept
    assert asked.read().size == len(BIG)


def test_a_piece_out_of_turn_is_told_where_to_go_on(asked: PendingInput) -> None:
    version = next(versions)
    assert asked.keep(part_of(BIG, PART_BYTES, version)).upto == 0
    assert asked.keep(part_of(BIG, 0, version)).upto == PART_BYTES
    assert asked.keep(part_of(BIG, 0, version)).upto == PART_BYTES


def test_tasks_do_not_share(asked: PendingInput) -> None:
    asked.keep_all(b"one", 1)
    asked.keep_all(b"two", 2)
    assert asked.read(1).data == b"one"
    asked.store.drop("job", 1)
    assert asked.read(1) == Found()
    asked.store.sweep(lambda job, index: False)
    assert asked.read(2) == Found()


def test_a_forgotten_job_leaves_nothing(asked: PendingInput) -> None:
    asked.keep_all(b"one")
    asked.store.forget("job")
    assert asked.read() == Found()


def test_damaged_bytes_are_not_kept(tmp_path: Path) -> None:
    answers: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    files = CheckpointFiles(tmp_path / "journal.db", answers.put)
    asked = PendingInput(files, answers)
    asked.keep_all(b"good")
    wrong = CheckpointPart(RUN, 99, 0, 3, blake3(b"one").digest(), b"two")
    assert not asked.keep(wrong).is_kept
    huge = CheckpointPart(RUN, 100, 0, CHECKPOINT_BYTES_MAX + 1, b"", b"x")
    assert not asked.keep(huge).is_kept
    assert asked.read().data == b"good"
    files.close()


# On the way


class Clock:
    def __init__(self) -> None:
        self.time = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time

    def unix(self) -> float:
        return self.time

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_at(self.time, callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        self._due.append((when, callback))

    def go_to(self, when: float) -> None:
        self.time = when
        due = [one for one in self._due if one[0] <= when]
        self._due = [one for one in self._due if one[0] > when]
        for _, callback in due:
            callback()


class Worker:
    def __init__(self) -> None:
        self.clock = Clock()
        self.told: list[Event] = []
        self.reporting = ReportRelay(
            self.clock, self.told.append, lambda data: blake3(data).digest()
        )

    def take(self) -> list[Event]:
        told = list(self.told)
        self.told.clear()
        return told

    def answer(self, message: CheckpointPart | CheckpointTaken) -> None:
        self.reporting.answered(CheckpointAnswered(RUN, message))


def test_of_progress_the_latest_is_told_and_not_too_often() -> None:
    worker = Worker()
    for number in range(10):
        worker.reporting.progressed(RUN, b"%d" % number)
    assert worker.take() == [RunsProgressed([(RUN, b"0")])]
    worker.clock.go_to(PROGRESS_SECONDS)
    assert worker.take() == [RunsProgressed([(RUN, b"9")])]
    worker.clock.go_to(2 * PROGRESS_SECONDS)
    assert worker.take() == []


def test_what_a_task_says_last_is_told_before_its_end() -> None:
    worker = Worker()
    worker.reporting.progressed(RUN, b"first")
    worker.reporting.progressed(RUN, b"last")
    worker.reporting.ended(RUN)
    assert worker.take()[-1] == RunsProgressed([(RUN, b"last")])


def test_a_piece_that_nobody_answers_is_sent_again() -> None:
    worker = Worker()
    kept: list[bool] = []
    worker.reporting.checkpoint(RUN, BIG, kept.append)
    [first] = worker.take()
    worker.clock.go_to(AGAIN_SECONDS)
    assert worker.take() == [first]
    worker.answer(CheckpointTaken(RUN, 1, PART_BYTES, is_kept=False))
    [second] = worker.take()
    assert isinstance(second, RunCheckpointed)
    assert second.part.data == b"and the rest"
    worker.answer(CheckpointTaken(RUN, 1, len(BIG), is_kept=True))
    assert kept == [True]
    worker.clock.go_to(10 * AGAIN_SECONDS)
    assert worker.take() == []


def test_a_newer_one_takes_the_place_of_one_on_its_way() -> None:
    worker = Worker()
    kept: list[bool] = []
    worker.reporting.checkpoint(RUN, b"one", kept.append)
    worker.reporting.checkpoint(RUN, b"two", kept.append)
    assert kept == [False]
    worker.answer(CheckpointTaken(RUN, 1, 3, is_kept=True))
    assert kept == [False]
    worker.answer(CheckpointTaken(RUN, 2, 3, is_kept=True))
    assert kept == [False, True]


def test_restoring_asks_until_it_has_all() -> None:
    worker = Worker()
    found: list[bytes | None] = []
    worker.reporting.restore(RUN, found.append)
    assert worker.take() == [RunWantsCheckpoint(RUN, 0)]
    worker.answer(part_of(BIG, 0, 0))
    assert worker.take() == [RunWantsCheckpoint(RUN, PART_BYTES)]
    worker.clock.go_to(AGAIN_SECONDS)
    assert worker.take() == [RunWantsCheckpoint(RUN, PART_BYTES)]
    worker.answer(part_of(BIG, PART_BYTES, 0))
    assert found == [BIG]


def test_a_task_that_ends_waits_for_nothing() -> None:
    worker = Worker()
    answers: list[object] = []
    worker.reporting.restore(RUN, answers.append)
    worker.reporting.checkpoint(RUN, b"one", answers.append)
    worker.reporting.ended(RUN)
    assert answers == [False, None]
    assert not worker.reporting.is_busy
