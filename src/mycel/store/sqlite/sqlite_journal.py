"""A scheduler's journal in one SQLite file.

    loop's thread             writer's thread                       loop's thread
    commit(entries, done) ──▶ queue ─▶ one transaction of several ─▶ done(None)
                                       groups, one sync
    commit_at_once(entries)   a few entries, while the thread has nothing to do

Groups share a transaction as long as all of their entries are sound. When one is not, it is
undone, and they are written anew entry by entry: what is wrong with one concerns it alone. What
is wrong with the disk stops the journal.

To wake the thread and to be woken by it costs a lone task as much as its commit. So a small
group is committed on the loop's own thread, which has nothing else to do then; `Pace` says no
when the disk is slow, and when it is time to copy the WAL, which takes longer.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from mycel.core.authenticators import SECRET_BYTES, Secret
from mycel.core.identifiers import JobId
from mycel.core.journal import AttemptEnded, Entry, EntryRefused, PartKept, Restored
from mycel.store.errors import (
    EntriesRefused,
    JournalBroken,
    OwnershipLost,
    StoreError,
    concerns_entry_alone,
    foreign,
    translated,
)
from mycel.store.interface import Done, End, JobDefinition, JobRow, Lines, Result
from mycel.store.long_values import Place, ValueFiles

from . import journal_restore
from .commit_pace import Pace
from .database import open_database, preallocate_wal
from .journal_reader import SqliteReader
from .journal_writer import EntryWriter
from .schema import JOURNAL_FORMAT

CallSoon = Callable[[Callable[[], None]], object]
"""Such as `loop.call_soon_threadsafe`."""

TRANSACTION_ROWS_MAX: Final = 2000
PRUNE_ROWS_MAX: Final = 500
PRUNE_EVERY_TRANSACTIONS: Final = 16
"""How often rows of pruned jobs are deleted while there is no idle moment."""
IDLE_SECONDS: Final = 0.25
"""After so long without a commit the WAL is copied into the database."""


class _Group(msgspec.Struct, frozen=True, gc=False):
    entries: Sequence[Entry]
    done: Done | None
    """None: only to wake the thread."""


class SqliteStore:
    """`store.interface.Journal` and `Reader`. The caller holds the lock of the folder."""

    def __init__(
        self, path: Path, call_soon: CallSoon, *, swarm: str = "", pace: Pace | None = None
    ) -> None:
        self._path = path
        self._call_soon = call_soon
        self._connection = open_database(path, JOURNAL_FORMAT)
        try:
            self._claim_for(swarm)
            _secret_of(self._connection)  # so that every opened journal has one to export
            preallocate_wal(self._connection)
            values = ValueFiles(path)
            values.remove_orphans(_values_in_files(self._connection))
            self._writer = EntryWriter(self._connection, values)
        except sqlite3.Error as error:
            self._connection.close()
            raise translated(error, path) from error
        except StoreError:
            self._connection.close()
            raise
        self._reader = SqliteReader(path)
        self._groups: queue.SimpleQueue[_Group | None] = queue.SimpleQueue()
        self._using_connection = threading.Lock()
        self._failure: BaseException | None = None
        self._closed = False
        self._transactions_since_pruning = 0
        self._pace = pace or Pace()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._started = False

    def raise_boot(self) -> int:
        statement = "UPDATE meta SET boot = boot + 1 RETURNING boot"
        with self._using_connection:
            try:
                boot: int = self._connection.execute(statement).fetchall()[0][0]
            except sqlite3.Error as error:
                raise translated(error, self._path) from error
        return boot

    def secret(self) -> Secret:
        with self._using_connection:
            try:
                return _secret_of(self._connection)
            except sqlite3.Error as error:
                raise translated(error, self._path) from error

    def restore(self) -> Restored:
        with self._using_connection:
            try:
                return journal_restore.restore(self._connection)
            except sqlite3.Error as error:
                raise translated(error, self._path) from error

    def commit(self, entries: Sequence[Entry], done: Done) -> None:
        if self._closed:
            self._call_soon(partial(done, JournalBroken(None)))
            return
        self._hand_over(_Group(entries, done))

    def commit_at_once(self, entries: Sequence[Entry]) -> bool:
        if self._closed or self._failure is not None or not self._pace.allows(len(entries)):
            return False
        if any(type(entry) is PartKept for entry in entries):
            return False  # files are the thread's business
        if not self._using_connection.acquire(blocking=False):
            return False
        try:
            self._transact([entries])
        except Exception:  # noqa: BLE001 - whatever it is, the thread meets it again
            return False  # undone; the thread tries it again, and tells why it cannot be
        finally:
            self._using_connection.release()
        if self._pace.committed_at_once() or self._writer.pruning_left:
            self._hand_over(_Group((), None))
        return True

    def _hand_over(self, group: _Group) -> None:
        if not self._started:
            # Not before: `restore` and `raise_boot` have the connection to themselves.
            self._started = True
            self._thread.start()
        self._groups.put(group)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._started:
            self._groups.put(None)
            self._thread.join()
        self._reader.close()
        self._connection.close()

    def job(self, job: JobId) -> JobRow | None:
        return self._reader.job(job)

    def definition(self, job: JobId) -> JobDefinition | None:
        return self._reader.definition(job)

    def jobs(self, *, before: JobId | None, limit: int) -> list[JobRow]:
        return self._reader.jobs(before=before, limit=limit)

    def find_jobs(self, prefix: str, limit: int, ending: str = "") -> list[JobId]:
        return self._reader.find_jobs(prefix, limit, ending)

    def result(self, job: JobId, index: int) -> Result | None:
        return self._reader.result(job, index)

    def results(self, job: JobId, *, after: int, limit: int) -> list[Result]:
        return self._reader.results(job, after=after, limit=limit)

    def ends(self, *, after: int, limit: int, job: JobId | None = None) -> list[End]:
        return self._reader.ends(after=after, limit=limit, job=job)

    def sequences(self) -> tuple[int, int]:
        return self._reader.sequences()

    def lines(self, job: JobId, *, after: int, limit: int) -> Lines:
        return self._reader.lines(job, after=after, limit=limit)

    def results_by_index(self, job: JobId, *, first: int, limit: int) -> list[Result]:
        return self._reader.results_by_index(job, first=first, limit=limit)

    def value(self, job: JobId, index: int, *, offset: int, length: int) -> bytes:
        return self._reader.value(job, index, offset=offset, length=length)

    def ended_attempts(self, job: JobId, index: int) -> list[AttemptEnded]:
        return self._reader.ended_attempts(job, index)

    def arguments(self, job: JobId, index: int) -> bytes:
        return self._reader.arguments(job, index)

    def arguments_by_index(self, job: JobId, *, first: int, limit: int) -> dict[int, bytes]:
        return self._reader.arguments_by_index(job, first=first, limit=limit)

    def _claim_for(self, swarm: str) -> None:
        (stored,) = self._connection.execute("SELECT swarm FROM meta").fetchone()
        if swarm and stored and swarm != stored:
            raise foreign(self._path, f"is the journal of swarm {stored!r}, not of {swarm!r}")
        if swarm and not stored:
            self._connection.execute("UPDATE meta SET swarm = ?", (swarm,))

    def _run(self) -> None:
        """The writer's thread."""
        more = True
        while more:
            groups, more = self._take()
            with self._using_connection:
                if groups:
                    self._commit(groups)
                try:
                    self._look_after(is_idle=not groups and more)
                except Exception as error:  # noqa: BLE001 - a thread that dies answers nobody
                    self._failure = self._of_the_disk(error)

    def _look_after(self, *, is_idle: bool) -> None:
        if is_idle:
            self._tidy_up()
        elif self._pruning_is_due():
            self._prune()
        elif self._pace.copying_is_overdue:
            self._copy()

    def _take(self) -> tuple[list[_Group], bool]:
        """The groups that wait, at least one unless there is something to tidy up; and
        whether more can follow."""
        groups: list[_Group] = []
        rows = 0
        try:
            group = self._first_group()
            while group is not None:
                groups.append(group)
                rows += len(group.entries)
                if rows >= TRANSACTION_ROWS_MAX:
                    return groups, True
                group = self._groups.get_nowait()
        except queue.Empty:
            return groups, True
        return groups, False

    def _first_group(self) -> _Group | None:
        if self._failure is None and self._writer.pruning_left:
            return self._groups.get_nowait()
        while self._failure is None and self._pace.copying_is_due:
            try:
                return self._groups.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._pace.is_idle():
                    raise
        return self._groups.get()

    def _commit(self, groups: list[_Group]) -> None:
        if self._failure is None:
            try:
                refused = self._written([group.entries for group in groups])
            except OwnershipLost as error:
                if len(groups) > 1:  # those before the offender are ours
                    for group in groups:
                        self._commit([group])
                    return
                self._fail(groups, error)
            except Exception as error:  # noqa: BLE001 - the thread's edge tells what ends it
                self._fail(groups, self._of_the_disk(error))
            else:
                for group, ones in zip(groups, refused, strict=True):
                    self._tell([group], EntriesRefused(ones) if ones else None)
        else:
            self._tell(groups, JournalBroken(self._failure))

    def _written(self, groups: list[Sequence[Entry]]) -> list[list[EntryRefused]]:
        """What was refused of each; the rest is on disk."""
        try:
            self._transact(groups)
        except Exception as error:
            if not concerns_entry_alone(error):
                raise
            return self._transact(groups, one_by_one=True)
        return [[] for _ in groups]

    def _transact(
        self, groups: list[Sequence[Entry]], *, one_by_one: bool = False
    ) -> list[list[EntryRefused]]:
        began = time.perf_counter()
        refused: list[list[EntryRefused]] = []
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for entries in groups:
                if one_by_one:
                    verdicts = [self._writer.apply_alone(entry) for entry in entries]
                    refused.append([one for one in verdicts if one is not None])
                else:
                    self._writer.apply(entries)
            self._connection.execute("COMMIT")
        except BaseException:
            self._undo()
            raise
        self._pace.took(time.perf_counter() - began)
        return refused

    def _of_the_disk(self, error: Exception) -> StoreError:
        if isinstance(error, sqlite3.Error):
            return translated(error, self._path)
        if isinstance(error, StoreError):
            return error
        return StoreError(f"the journal {self._path} cannot be written: {error!r}")

    def _undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._writer.forget()

    def _fail(self, groups: list[_Group], error: BaseException) -> None:
        self._failure = error
        self._tell(groups, error)

    def _tell(self, groups: list[_Group], error: BaseException | None) -> None:
        try:
            for group in groups:
                if group.done is not None:
                    self._call_soon(partial(group.done, error))
        except RuntimeError:
            # The loop was closed before its store: nobody is left who could be told.
            self._failure = self._failure or error

    def _pruning_is_due(self) -> bool:
        self._transactions_since_pruning += 1
        overdue = self._transactions_since_pruning >= PRUNE_EVERY_TRANSACTIONS
        return overdue and self._writer.pruning_left and self._failure is None

    def _tidy_up(self) -> None:
        if self._writer.pruning_left:
            self._prune()
        elif self._pace.copying_is_due:
            self._copy()

    def _copy(self) -> None:
        self._pace.copied()
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _prune(self) -> None:
        self._transactions_since_pruning = 0
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._writer.prune_step(PRUNE_ROWS_MAX)
            self._connection.execute("COMMIT")
        except BaseException:
            self._undo()
            raise
        self._pace.took(0.0)


def _secret_of(connection: sqlite3.Connection) -> Secret:
    """A journal of an earlier version, or taken in from an export of one, has none yet."""
    (found,) = connection.execute("SELECT secret FROM meta").fetchone()
    if len(found) != SECRET_BYTES:
        found = os.urandom(SECRET_BYTES)
        connection.execute("UPDATE meta SET secret = ?", (found,))
    return Secret(found)


def _values_in_files(connection: sqlite3.Connection) -> set[Place]:
    query = "SELECT job, task_index, attempt FROM results WHERE value_size > 0"
    return set(connection.execute(query))
