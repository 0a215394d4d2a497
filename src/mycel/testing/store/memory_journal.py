"""The journal's twin for simulation: the same promises, in virtual time, without a disk.

Entries go through the codec, so that what is read back is never the writer's own object.
`crash` is the point of it: groups that were not yet done are gone, and the store that it
returns is what the restarted node finds.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from mycel.core.authenticators import SECRET_BYTES, Secret
from mycel.core.identifiers import JobId, first_of_boot
from mycel.core.journal import (
    AttemptEnded,
    BlockAppended,
    Entry,
    EntryRefused,
    GroupAdded,
    JobClosed,
    JobEnded,
    JobOpened,
    JobsPruned,
    LeaseEnded,
    LeaseGranted,
    PartKept,
    ProfileSeen,
    Restored,
    TaskEnded,
    WorkerMeasured,
    WorkersForgotten,
    unstorable,
)
from mycel.store.errors import (
    AlreadyEnded,
    AttemptOutdated,
    DiskRefused,
    EntriesRefused,
    JournalBroken,
    RuleBroken,
    StoreError,
    TaskUnknown,
)
from mycel.store.interface import DefinedBlock, Done, End, JobDefinition, JobRow, Lines, Result
from mycel.store.result_lines import lines_of
from mycel.store.sqlite.journal_reader import RESULT_BYTES_MAX, arguments_of, size_of

from .memory_book import BookJob, MemoryBook

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODERS: Final[dict[type[Any], msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in (
        JobOpened,
        GroupAdded,
        BlockAppended,
        JobClosed,
        JobEnded,
        JobsPruned,
        TaskEnded,
        AttemptEnded,
        LeaseGranted,
        LeaseEnded,
        ProfileSeen,
        WorkerMeasured,
        WorkersForgotten,
        PartKept,
    )
}


class Clock(Protocol):
    def now(self) -> float: ...
    def call_at(self, when: float, callback: Callable[[], None], /) -> object: ...


class Committed(msgspec.Struct, frozen=True):
    """An entry that is on the imagined disk, for whoever judges a run."""

    at: float
    """The clock's time of the commit."""
    entry: Entry


class _Durable:
    """What outlives a crash."""

    def __init__(self) -> None:
        self.boot = 0
        self.secret = Secret(os.urandom(SECRET_BYTES))
        self.book = MemoryBook()
        self.committed: list[Committed] = []

    def start_over(self) -> None:
        """Undoes what is not committed."""
        faulted, self.book = self.book.faulted, MemoryBook()
        self.book.faulted = faulted
        for committed in self.committed:
            self._apply(committed.entry)

    def _apply(self, entry: Entry) -> None:
        try:
            self.book.apply(entry)
        except AttemptOutdated:
            assert isinstance(entry, TaskEnded | AttemptEnded)
            if not self.book.forget_impossible_attempts(entry, first_of_boot(self.boot + 1)):
                raise
            self.book.apply(entry)

    def apply(
        self, given: Entry, encoded: bytes | Exception, written: list[Committed], now: float
    ) -> EntryRefused | None:
        """Raises what is not the entry's own fault."""
        entry, error = self._tried(given, encoded)
        if error is None:
            written.append(Committed(now, entry))
            return None
        told = f"{type(error).__name__}: {error}"
        if not isinstance(given, TaskEnded) or isinstance(error, AlreadyEnded | TaskUnknown):
            return EntryRefused(given, told)
        instead = unstorable(given, told)
        _, second = self._tried(instead, _bytes_of(instead))
        if second is not None:
            return EntryRefused(given, told)
        written.append(Committed(now, instead))
        self.book.faulted.add(given.job)
        return EntryRefused(given, told, instead)

    def _tried(self, given: Entry, encoded: bytes | Exception) -> tuple[Entry, Exception | None]:
        if isinstance(encoded, Exception):
            return given, encoded
        try:
            entry: Entry = _DECODERS[type(given)].decode(encoded)
        except msgspec.ValidationError as error:
            return given, error
        try:
            self._apply(entry)
        except RuleBroken as error:
            return entry, error
        return entry, None


_Encoded = list[tuple[Entry, bytes | Exception]]
"""What cannot be encoded cannot be stored."""


class _Group(msgspec.Struct, frozen=True):
    entries: _Encoded
    done: Done


def _encoded(entries: Sequence[Entry]) -> _Encoded:
    return [(entry, _bytes_of(entry)) for entry in entries]


def _bytes_of(entry: Entry) -> bytes | Exception:
    try:
        return _ENCODER.encode(entry)
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        return error


class MemoryStore:
    """`store.interface.Journal` and `Reader`, for one thread."""

    def __init__(
        self,
        clock: Clock,
        latency_seconds: float | Callable[[], float] = 0.0,
        *,
        at_once: Callable[[], bool] = lambda: False,
        _durable: _Durable | None = None,
    ) -> None:
        self._clock = clock
        self._latency_seconds = latency_seconds
        self._at_once = at_once
        self._durable = _durable or _Durable()
        self._waiting: deque[_Group] = deque()
        self._last_done_at = clock.now()
        self._failure: BaseException | None = None
        self._disk_works = True
        self._closed = False
        self._crashed = False

    @property
    def committed(self) -> list[Committed]:
        """Every entry in the order of commits, over all crashes. Not to be changed."""
        return self._durable.committed

    def crash(self) -> MemoryStore:
        """Drops every group that is not yet done; this store is dead from now on."""
        self._crashed = True
        self._waiting.clear()
        return MemoryStore(
            self._clock, self._latency_seconds, at_once=self._at_once, _durable=self._durable
        )

    def break_disk(self) -> None:
        """Every group that is not yet done is refused, and every later one."""
        self._disk_works = False

    def raise_boot(self) -> int:
        self._durable.boot += 1
        return self._durable.boot

    def secret(self) -> Secret:
        return self._durable.secret

    def restore(self) -> Restored:
        return self._durable.book.restored(first_of_boot(self._durable.boot + 1))

    def commit(self, entries: Sequence[Entry], done: Done) -> None:
        if self._crashed:
            return
        latency = self._latency_seconds
        seconds = latency() if callable(latency) else latency
        # A shorter latency must not overtake: commits are done in the order of the calls.
        self._last_done_at = max(self._last_done_at, self._clock.now() + seconds)
        self._waiting.append(_Group(_encoded(entries), done))
        self._clock.call_at(self._last_done_at, self._finish_one)

    def commit_at_once(self, entries: Sequence[Entry]) -> bool:
        assert not self._waiting, "a commit is under way"
        if self._crashed or not self._at_once():
            return False
        encoded = _encoded(entries)
        if any(isinstance(one, Exception) for _, one in encoded):
            return False
        before = len(self._durable.committed)
        refused = self._write(encoded)
        if isinstance(refused, EntriesRefused):  # as in SQLite, `commit` tells
            del self._durable.committed[before:]
            self._durable.start_over()
        return refused is None

    def close(self) -> None:
        while self._waiting:
            self._finish_one()
        self._closed = True

    def _finish_one(self) -> None:
        if not self._waiting:
            return  # the store crashed, or was closed, before the clock came here
        group = self._waiting.popleft()
        error = self._write(group.entries)
        is_the_end = error is not None and not isinstance(error, EntriesRefused)
        if is_the_end and self._failure is None:
            self._failure = error
        group.done(error)

    def _write(self, encoded: _Encoded) -> StoreError | None:
        if self._failure is not None or self._closed:
            return JournalBroken(self._failure)
        if not self._disk_works:
            return DiskRefused("the simulated disk refused a write")
        now = self._clock.now()
        refused: list[EntryRefused] = []
        written: list[Committed] = []
        for given, one in encoded:
            try:
                verdict = self._durable.apply(given, one, written, now)
            except StoreError as error:  # all or nothing
                self._durable.start_over()
                return error
            if verdict is not None:
                refused.append(verdict)
        self._durable.committed.extend(written)
        return EntriesRefused(refused) if refused else None

    def job(self, job: JobId) -> JobRow | None:
        found = self._durable.book.find(job)
        return None if found is None else _row(found)

    def jobs(self, *, before: JobId | None, limit: int) -> list[JobRow]:
        book = self._durable.book
        newest_first = sorted(book.jobs, reverse=True)
        if before is not None:
            number = book.numbers.get(before)
            newest_first = [n for n in newest_first if number is not None and n < number]
        return [_row(book.jobs[number]) for number in newest_first[:limit]]

    def definition(self, job: JobId) -> JobDefinition | None:
        found = self._durable.book.find(job)
        if found is None:
            return None
        ended = found.by_index
        blocks = [
            DefinedBlock(
                one.group,
                one.first,
                one.count,
                one.arguments,
                tuple(
                    index
                    for index in range(one.first, one.first + one.count)
                    if index in ended and ended[index].ended.state != "succeeded"
                ),
            )
            for one in (block.appended for block in found.blocks)
        ]
        return JobDefinition(found.opened, list(found.groups), blocks)

    def find_jobs(self, prefix: str, limit: int, ending: str = "") -> list[JobId]:
        known = self._durable.book.numbers
        return sorted(job for job in known if job.startswith(prefix) and job.endswith(ending))[
            :limit
        ]

    def result(self, job: JobId, index: int) -> Result | None:
        found = self._durable.book.find(job)
        return None if found is None else found.by_index.get(index)

    def results(self, job: JobId, *, after: int, limit: int) -> list[Result]:
        found = self._durable.book.find(job)
        results = [] if found is None else [r for r in found.results if r.sequence > after]
        return _bounded(results[:limit])

    def ends(self, *, after: int, limit: int, job: JobId | None = None) -> list[End]:
        jobs = self._durable.book.jobs.values()
        found = [
            _end(one, result)
            for one in jobs
            if job is None or one.opened.id == job
            for result in one.results
            if result.sequence > after
        ]
        return sorted(found, key=lambda end: end.sequence)[:limit]

    def sequences(self) -> tuple[int, int]:
        book = self._durable.book
        return book.pruned_sequence, book.last_sequence

    def lines(self, job: JobId, *, after: int, limit: int) -> Lines:
        return lines_of(self.results(job, after=after, limit=limit), after)

    def results_by_index(self, job: JobId, *, first: int, limit: int) -> list[Result]:
        found = self._durable.book.find(job)
        if found is None:
            return []
        indexes = range(first, first + limit)
        return _bounded([found.by_index[i] for i in indexes if i in found.by_index])

    def value(self, job: JobId, index: int, *, offset: int, length: int) -> bytes:
        result = self.result(job, index)
        if result is None:
            return b""
        ended = result.ended
        whole = ended.value
        if ended.value_size:
            assert ended.attempt is not None
            whole = bytes(self._durable.book.values[ended.job, ended.index, ended.attempt])
        return whole[offset : offset + length]

    def ended_attempts(self, job: JobId, index: int) -> list[AttemptEnded]:
        found = self._durable.book.find(job)
        return [] if found is None else list(found.attempts.get(index, ()))

    def arguments(self, job: JobId, index: int) -> bytes:
        found = self._durable.book.find(job)
        block = None if found is None else found.block_of(index)
        if block is None:
            return b""
        return arguments_of(block.appended.arguments, index - block.appended.first)

    def arguments_by_index(self, job: JobId, *, first: int, limit: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for index in range(first, first + limit):
            if one := self.arguments(job, index):
                found[index] = one
                if sum(map(len, found.values())) > RESULT_BYTES_MAX:
                    break
        return found


def _bounded(results: list[Result]) -> list[Result]:
    size = 0
    for place, result in enumerate(results):
        size += size_of(result.ended)
        if place and size > RESULT_BYTES_MAX:
            return results[:place]
    return results


def _end(job: BookJob, result: Result) -> End:
    ended = result.ended
    return End(
        result.sequence,
        job.opened.id,
        job.opened.name,
        job.opened.user,
        ended.index,
        ended.state,
        ended.reason,
        ended.number,
        ended.worker,
        ended.exit_code,
        ended.error,
        ended.ended_at,
        job.state if result is job.results[-1] else "",
    )


def _row(job: BookJob) -> JobRow:
    counts = {"succeeded": 0, "failed": 0, "cancelled": 0}
    for result in job.results:
        counts[result.ended.state] += 1
    return JobRow(
        opened=job.opened,
        closed=job.closed,
        state=job.state,
        ended_at=job.ended_at,
        tasks=sum(block.appended.count for block in job.blocks),
        **counts,
    )
