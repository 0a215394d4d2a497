"""Opens either store, commits and waits, and makes entries with few words."""

from __future__ import annotations

import heapq
import math
import queue
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from mycel.core.identifiers import AttemptId, JobId, JobNumber, LeaseId, PeerId
from mycel.core.journal import (
    AttemptEnded,
    BlockAppended,
    Entry,
    GroupAdded,
    JobOpened,
    LeaseGranted,
    TaskEnded,
)
from mycel.core.journal_codec import encode_stages
from mycel.core.model.stages import Stage
from mycel.store.interface import Done, Journal, Reader
from mycel.store.sqlite.commit_pace import Pace
from mycel.store.sqlite.sqlite_journal import SqliteStore
from mycel.testing.store.memory_journal import MemoryStore

PATIENCE_SECONDS = 60.0


class Store(Journal, Reader, Protocol):
    """What the suite needs of either."""


class ManualClock:
    """Virtual time: `run` goes on until nothing is due."""

    def __init__(self) -> None:
        self._now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, callback))

    def run(self) -> None:
        while self._due:
            self._now, _, callback = heapq.heappop(self._due)
            callback()


class Harness(Protocol):
    store: Store

    def settle(self) -> None:
        """Runs until every commit has called its `done`."""

    def reopen(self) -> None:
        """Closes the store and opens it again, as a restarted node does."""

    def close(self) -> None: ...


class SqliteHarness:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.store: Store = self._open()

    def _open(self) -> SqliteStore:
        # However slow the tests' disk is: what is promised of commits at once is to be seen.
        return SqliteStore(self._path, self._calls.put, pace=Pace(quick_seconds=math.inf))

    def settle(self) -> None:
        finished: list[bool] = []
        self.store.commit([], lambda error: finished.append(True))
        while not finished:
            self._calls.get(timeout=PATIENCE_SECONDS)()

    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()

    def close(self) -> None:
        self.store.close()


class MemoryHarness:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self._memory = MemoryStore(self.clock, 0.001, at_once=lambda: True)
        self.store: Store = self._memory

    def settle(self) -> None:
        self.clock.run()

    def reopen(self) -> None:
        self.store.close()
        self._memory = self._memory.crash()
        self.store = self._memory

    def close(self) -> None:
        self.store.close()


def commit(harness: Harness, *groups: Sequence[Entry]) -> list[BaseException | None]:
    """Hands the groups over at once, and returns what each of them was told."""
    told: list[BaseException | None] = []
    for group in groups:
        harness.store.commit(group, told.append)
    harness.settle()
    return told


def commit_soundly(harness: Harness, *groups: Sequence[Entry]) -> None:
    assert commit(harness, *groups) == [None] * len(groups)


def commit_at_once(harness: Harness, entries: Sequence[Entry]) -> None:
    """A store may say no while another thread is at it; that ends."""
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not harness.store.commit_at_once(entries):
        assert time.monotonic() < ends_at


def nothing(error: BaseException | None) -> None:
    assert error is None


ignore: Done = nothing


def job_id(number: int) -> JobId:
    return JobId(f"{number:026d}")


def opened(number: int = 1) -> JobOpened:
    return JobOpened(
        job=JobNumber(number),
        id=job_id(number),
        name=f"job {number}",
        user="owner",
        specification=b"\x81\xa1a\x01",
        created_at=1000.5 + number,
        idempotency_key=f"key {number}",
        body_digest=b"\x00\xff" * 16,
        stages=encode_stages((Stage("first", hands_on=True), Stage("next", needs=(0,))))
        if number % 2
        else b"",
    )


def group(number: int = 1, place: int = 1) -> GroupAdded:
    return GroupAdded(JobNumber(number), place, place % 2, b"\x00specification")


def block(
    number: int = 1,
    *,
    batch: int = 0,
    first: int = 0,
    count: int = 10,
    epoch: int = 1,
    arguments: bytes = b"",
) -> BlockAppended:
    digest = b"\x00digest" if batch else b""
    return BlockAppended(
        JobNumber(number), batch, first, count, arguments, epoch, 1001.25, batch % 3, digest
    )


def task_ended(
    number: int = 1,
    index: int = 0,
    *,
    attempt: int | None = 100,
    state: str = "succeeded",
    epoch: int = 1,
    value: bytes = b'{"json":42}',
) -> TaskEnded:
    return TaskEnded(
        job=JobNumber(number),
        index=index,
        owner_epoch=epoch,
        state=state,
        reason="user" if state == "cancelled" else "",
        attempt=None if attempt is None else AttemptId(attempt),
        attempt_state="" if attempt is None else state,
        number=0 if attempt is None else 1,
        worker=None if attempt is None else PeerId("worker-1"),
        exit_code=None if attempt is None else 3,
        value=value,
        digest=b"digest\x00",
        error="ouch" if state == "failed" else "",
        stdout=b"out\xff",
        stderr=b"err",
        started_at=None if attempt is None else 1002.125,
        ended_at=1003.0,
    )


def attempt_ended(
    number: int = 1, index: int = 0, *, attempt: int = 100, epoch: int = 1
) -> AttemptEnded:
    return AttemptEnded(
        job=JobNumber(number),
        index=index,
        owner_epoch=epoch,
        attempt=AttemptId(attempt),
        state="lost",
        counts=attempt % 2 == 0,
        number=1,
        worker=PeerId("worker-1"),
        exit_code=None,
        error="gone",
        started_at=None,
        ended_at=1004.0,
        cause="worker" if attempt % 2 == 0 else "",
    )


def lease(worker: str = "worker-1", number: int = 7) -> LeaseGranted:
    return LeaseGranted(
        PeerId(worker),
        LeaseId(number),
        ("/ip4/127.0.0.1/tcp/1",),
    )
