"""Turns journal entries into SQL, with the rules of the journal checked in the same statements.

Runs of entries of one type share a statement; many single tasks at once are brought into such
runs first. A conditional INSERT that a rule stops changes no row, so a run is sound if it
changed as many rows as it has entries; only when it did not, the offender and its reason are
looked for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from mycel.core.identifiers import COUNTER_BITS
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
    TaskEnded,
    WorkerMeasured,
    WorkersForgotten,
    unstorable,
)
from mycel.store.errors import (
    AlreadyEnded,
    AttemptOutdated,
    OwnershipLost,
    RuleBroken,
    StoreError,
    TaskUnknown,
    concerns_entry_alone,
)
from mycel.store.long_values import ValueFiles

from .bulk_statements import ManyRows, Row

# The owner epoch of the block that has the task, or NULL if no block has it. Only the places
# of parameters are put into these texts.
_EPOCH_OF_TASK: Final = """(
    SELECT CASE WHEN first + count > {index} THEN owner_epoch END FROM blocks
    WHERE job = {job} AND first <= {index} ORDER BY first DESC LIMIT 1)"""

_TASK_ENDED: Final = ManyRows(
    f"""
INSERT OR IGNORE INTO results SELECT * FROM given
WHERE {_EPOCH_OF_TASK.format(job="a2", index="a3")} = a4
AND NOT EXISTS (
    SELECT 1 FROM ended_attempts WHERE job = a2 AND task_index = a3 AND attempt >= a7)
""",  # noqa: S608
    columns=22,
)

_ATTEMPT_ENDED: Final = f"""
INSERT OR IGNORE INTO ended_attempts
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15
WHERE {_EPOCH_OF_TASK.format(job="?1", index="?2")} = ?3
AND NOT EXISTS (SELECT 1 FROM results WHERE job = ?1 AND task_index = ?2)
AND NOT EXISTS (
    SELECT 1 FROM ended_attempts WHERE job = ?1 AND task_index = ?2 AND attempt >= ?4)
"""  # noqa: S608

_JOB_OPENED: Final = ManyRows(
    """
INSERT OR IGNORE INTO jobs
    (number, id, name, user, specification, created_at, idempotency_key, body_digest, stages)
SELECT * FROM given WHERE NOT EXISTS (SELECT 1 FROM pruned_jobs WHERE number = a1)
""",
    columns=9,
)

_BLOCK_APPENDED: Final = ManyRows(
    """
INSERT OR IGNORE INTO blocks
    (job, batch, first, count, arguments, owner_epoch, appended_at, group_number, digest)
SELECT * FROM given
WHERE EXISTS (SELECT 1 FROM jobs WHERE number = a1 AND NOT closed AND state = '')
AND NOT EXISTS (SELECT 1 FROM blocks WHERE job = a1 AND batch = a2)
AND a3 >= coalesce((
    SELECT first + count FROM blocks WHERE job = a1 ORDER BY first DESC LIMIT 1), 0)
""",
    columns=9,
)

_JOB_CLOSED: Final = ManyRows(
    "UPDATE jobs SET closed = 1 WHERE number IN (SELECT a1 FROM given)",
    columns=1,
    single="UPDATE jobs SET closed = 1 WHERE number = ?1",
)

_JOB_ENDED: Final = ManyRows(
    """
UPDATE jobs SET state = a2, ended_at = a3 FROM given WHERE number = a1 AND jobs.state = ''
""",
    columns=3,
    single="UPDATE jobs SET state = ?2, ended_at = ?3 WHERE number = ?1 AND state = ''",
)

_PRUNE_RESULTS: Final = """
DELETE FROM results WHERE sequence IN (SELECT sequence FROM results WHERE job = ? LIMIT ?)
RETURNING state, sequence
"""

_COUNT_PRUNED: Final = """
UPDATE meta SET pruned_succeeded = pruned_succeeded + ?1, pruned_failed = pruned_failed + ?2,
    pruned_cancelled = pruned_cancelled + ?3, pruned_sequence = max(pruned_sequence, ?4)
"""

_GROUP_ADDED: Final = """
INSERT OR IGNORE INTO groups SELECT ?1, ?2, ?3, ?4
WHERE EXISTS (SELECT 1 FROM jobs WHERE number = ?1 AND NOT closed AND state = '')
"""

_PRUNE_STEPS: Final = (
    """DELETE FROM groups WHERE (job, number) IN (
        SELECT job, number FROM groups WHERE job = ? LIMIT ?)""",
    "DELETE FROM blocks WHERE number IN (SELECT number FROM blocks WHERE job = ? LIMIT ?)",
    """DELETE FROM ended_attempts WHERE (job, task_index, attempt) IN (
        SELECT job, task_index, attempt FROM ended_attempts WHERE job = ? LIMIT ?)""",
)

IMPOSSIBLE: Final = f"attempt >= ((SELECT boot FROM meta) + 1 << {COUNTER_BITS})"  # noqa: S608
"""Of an attempt that no boot of this journal can have given: somebody has made it up."""
_FORGET_IMPOSSIBLE: Final = f"""
DELETE FROM ended_attempts WHERE job = ? AND task_index = ? AND {IMPOSSIBLE}
"""  # noqa: S608

PROFILES_MAX: Final = 1_000
STATES: Final = ("succeeded", "failed", "cancelled")

IN_THIS_ORDER: Final = (JobOpened, BlockAppended, JobClosed, TaskEnded, JobEnded)
"""Of different jobs these do not concern each other, and of one job they come like this."""
_RANKS: Final[dict[type[Any], int]] = {kind: rank for rank, kind in enumerate(IN_THIS_ORDER)}


class EntryWriter:
    """Applies entries within the caller's transaction.

    Knows the last sequence number; `forget` after a ROLLBACK takes it from the database again.
    `pruning_left` says whether `prune_step` has anything to do.
    """

    pruning_left: bool

    def __init__(self, connection: sqlite3.Connection, values: ValueFiles) -> None:
        self._connection = connection
        self._values = values
        self._apply: Final[dict[type[Any], Callable[[list[Any]], None]]] = {
            JobOpened: self._open_jobs,
            GroupAdded: self._add_groups,
            BlockAppended: self._append_blocks,
            JobClosed: self._close_jobs,
            JobEnded: self._end_jobs,
            JobsPruned: self._prune_jobs,
            TaskEnded: self._end_tasks,
            AttemptEnded: self._end_attempts,
            LeaseGranted: self._grant_leases,
            LeaseEnded: self._end_leases,
            PartKept: self._keep_parts,
            WorkerMeasured: self._measure_workers,
            ProfileSeen: self._see_profiles,
            WorkersForgotten: self._forget_workers,
        }
        self._faulted: set[int] = set()
        """Jobs of which a task could not be stored as it ended."""
        self.forget()

    def apply_alone(self, entry: Entry) -> EntryRefused | None:
        """An entry that may be at fault. Raises what is not the entry's own."""
        error = self._try(entry)
        if isinstance(error, AttemptOutdated) and self._forget_impossible_attempts(entry):
            error = self._try(entry)
        if error is None:
            return None
        told = f"{type(error).__name__}: {error}"
        if not isinstance(entry, TaskEnded) or isinstance(error, AlreadyEnded | TaskUnknown):
            return EntryRefused(entry, told)
        instead = unstorable(entry, told)
        if self._try(instead) is not None:
            return EntryRefused(entry, told)
        self._faulted.add(entry.job)
        return EntryRefused(entry, told, instead)

    def _try(self, entry: Entry) -> BaseException | None:
        self._connection.execute("SAVEPOINT entry")
        try:
            self.apply([entry])
        except Exception as error:
            if not concerns_entry_alone(error):
                raise
            self._connection.execute("ROLLBACK TO entry")
            self.forget()
            return error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE entry")
        return None

    def _forget_impossible_attempts(self, entry: Entry) -> bool:
        """Of that task: whether there were any."""
        assert isinstance(entry, TaskEnded | AttemptEnded)
        parameters = (entry.job, entry.index)
        return self._connection.execute(_FORGET_IMPOSSIBLE, parameters).rowcount > 0

    def forget(self) -> None:
        query = """SELECT max(pruned_sequence, coalesce((SELECT max(sequence) FROM results), 0))
            FROM meta"""
        self._last_sequence: int = self._connection.execute(query).fetchone()[0]
        self.pruning_left = self._any_pruned()

    def apply(self, entries: Sequence[Entry]) -> None:
        if len(entries) > len(IN_THIS_ORDER) and all(type(entry) in _RANKS for entry in entries):
            entries = sorted(entries, key=lambda entry: _RANKS[type(entry)])
        for kind, run in groupby(entries, key=type):
            self._apply[kind](list(run))

    def prune_step(self, rows_max: int) -> None:
        """Deletes up to that many rows of forgotten jobs, and keeps count of them."""
        execute = self._connection.execute
        for (job,) in execute("SELECT number FROM pruned_jobs LIMIT ?", (rows_max,)).fetchall():
            rows_max -= self._prune_results(job, rows_max)
            for statement in _PRUNE_STEPS:
                if rows_max <= 0:
                    return
                rows_max -= execute(statement, (job, rows_max)).rowcount
            if rows_max <= 0:
                return
            self._values.remove_job(job)
            execute("DELETE FROM pruned_jobs WHERE number = ?", (job,))
            rows_max -= 1
        self.pruning_left = self._any_pruned()

    def _prune_results(self, job: int, rows_max: int) -> int:
        gone = self._connection.execute(_PRUNE_RESULTS, (job, rows_max)).fetchall()
        if gone:
            states = [state for state, _ in gone]
            counts = [states.count(state) for state in STATES]
            highest = max(sequence for _, sequence in gone)
            self._connection.execute(_COUNT_PRUNED, (*counts, highest))
        return len(gone)

    def _any_pruned(self) -> bool:
        query = "SELECT 1 FROM pruned_jobs LIMIT 1"
        return self._connection.execute(query).fetchone() is not None

    def _changes(self, statement: str, rows: Sequence[Row]) -> int:
        before = self._connection.total_changes
        self._connection.executemany(statement, rows)
        return self._connection.total_changes - before

    def _end_tasks(self, run: list[TaskEnded]) -> None:
        first = self._last_sequence + 1
        for ended in run:
            if ended.value_size and ended.attempt is not None:
                self._values.seal(ended.job, ended.index, ended.attempt, ended.value_size)
        rows = [(number, *astuple(ended)) for number, ended in enumerate(run, first)]
        if _TASK_ENDED.run(self._connection, rows) != len(rows):
            raise self._why_not_ended(run, first)
        self._last_sequence += len(rows)
        states = {ended.state for ended in run}
        if not states <= set(STATES):
            raise RuleBroken(f"a task can end as one of {STATES}, not as one of {states}")

    def _why_not_ended(self, run: list[TaskEnded], first: int) -> StoreError:
        for sequence, ended in enumerate(run, first):
            query = "SELECT sequence FROM results WHERE job = ? AND task_index = ?"
            found = self._connection.execute(query, (ended.job, ended.index)).fetchone()
            if found == (sequence,):
                continue
            return self._why_refused(ended, terminal=found is not None)
        return RuleBroken("SQLite kept fewer finished tasks than it was given")

    def _end_attempts(self, run: list[AttemptEnded]) -> None:
        # One by one: they are rare, and several of one task may come in one run.
        for ended in run:
            if self._connection.execute(_ATTEMPT_ENDED, astuple(ended)).rowcount != 1:
                query = "SELECT 1 FROM results WHERE job = ? AND task_index = ?"
                found = self._connection.execute(query, (ended.job, ended.index)).fetchone()
                raise self._why_refused(ended, terminal=found is not None)

    def _why_refused(self, ended: TaskEnded | AttemptEnded, *, terminal: bool) -> StoreError:
        task = f"task {ended.index} of job {ended.job}"
        if terminal:
            return AlreadyEnded(f"{task} already has its terminal state")
        query = f"SELECT {_EPOCH_OF_TASK.format(job='?1', index='?2')}"
        (epoch,) = self._connection.execute(query, (ended.job, ended.index)).fetchone()
        if epoch is None:
            return TaskUnknown(f"no block has {task}")
        if epoch != ended.owner_epoch:
            return OwnershipLost(
                f"{task} belongs to owner epoch {epoch}, not to {ended.owner_epoch}: "
                "another scheduler took it over"
            )
        return AttemptOutdated(
            f"attempt {ended.attempt} of {task} is not above its highest ended attempt"
        )

    def _open_jobs(self, run: list[JobOpened]) -> None:
        if _JOB_OPENED.run(self._connection, [astuple(opened) for opened in run]) != len(run):
            raise RuleBroken(f"one of the jobs {[opened.id for opened in run]} exists already")

    def _add_groups(self, run: list[GroupAdded]) -> None:
        if self._changes(_GROUP_ADDED, [astuple(group) for group in run]) != len(run):
            names = [f"group {group.group} of job {group.job}" for group in run]
            raise RuleBroken(f"one of {names} is there already, or its job is closed")

    def _append_blocks(self, run: list[BlockAppended]) -> None:
        alone = len({block.job for block in run}) == len(run)
        parts = [run] if alone else [[block] for block in run]  # each must see those before it
        rows = [[astuple(block) for block in part] for part in parts]
        if sum(_BLOCK_APPENDED.run(self._connection, part) for part in rows) != len(run):
            names = [f"batch {block.batch} of job {block.job}" for block in run]
            raise RuleBroken(f"one of {names} repeats another, overlaps it, or its job is closed")

    def _close_jobs(self, run: list[JobClosed]) -> None:
        jobs = list(dict.fromkeys(closed.job for closed in run))  # closed twice is closed
        if _JOB_CLOSED.run(self._connection, [(job,) for job in jobs]) != len(jobs):
            raise RuleBroken(f"one of the jobs {jobs} does not exist")

    def _end_jobs(self, run: list[JobEnded]) -> None:
        if self._faulted:  # the scheduler may not have heard of it yet
            run = [as_ended(ended, self._faulted) for ended in run]
        if _JOB_ENDED.run(self._connection, [astuple(ended) for ended in run]) != len(run):
            raise AlreadyEnded(
                f"one of the jobs {[ended.job for ended in run]} has ended or does not exist"
            )

    def _prune_jobs(self, run: list[JobsPruned]) -> None:
        # What is large is deleted later, step by step; without its row a job is invisible.
        rows = [(job,) for pruned in run for job in pruned.jobs]
        # Not the pruned one's: it need not be the highest, or be there at all.
        self._connection.execute(
            """UPDATE meta SET pruned_job =
            max(pruned_job, coalesce((SELECT max(number) FROM jobs), 0))"""
        )
        self._connection.executemany(
            "INSERT OR IGNORE INTO pruned_jobs SELECT number FROM jobs WHERE number = ?", rows
        )
        self._connection.executemany("DELETE FROM jobs WHERE number = ?", rows)
        self.pruning_left = self._any_pruned()

    def _grant_leases(self, run: list[LeaseGranted]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO leases VALUES (?, ?, ?)",
            [
                (*astuple(granted)[:2], msgspec.json.encode(granted.addresses).decode())
                for granted in run
            ],
        )

    def _end_leases(self, run: list[LeaseEnded]) -> None:
        self._connection.executemany(
            "DELETE FROM leases WHERE worker = ? AND lease = ?",
            [(ended.worker, ended.lease) for ended in run],
        )

    def _keep_parts(self, run: list[PartKept]) -> None:
        for part in run:
            self._values.write(part.job, part.index, part.attempt, part.offset, part.data)

    def _measure_workers(self, run: list[WorkerMeasured]) -> None:
        rows = [astuple(measured) for measured in run]
        self._connection.executemany("INSERT OR REPLACE INTO workers VALUES (?,?,?,?,?,?)", rows)

    def _see_profiles(self, run: list[ProfileSeen]) -> None:
        rows = [astuple(seen) for seen in run]
        self._connection.executemany("INSERT OR REPLACE INTO profiles VALUES (?,?,?,?)", rows)
        self._connection.execute(
            """DELETE FROM profiles WHERE kind NOT IN (
                SELECT kind FROM profiles ORDER BY seen_at DESC, kind LIMIT ?)""",
            (PROFILES_MAX,),
        )

    def _forget_workers(self, run: list[WorkersForgotten]) -> None:
        rows = [(worker,) for forgotten in run for worker in forgotten.workers]
        self._connection.executemany("DELETE FROM workers WHERE worker = ?", rows)


def as_ended(ended: JobEnded, faulted: Collection[int]) -> JobEnded:
    """A job has not succeeded if one of its tasks could not be stored as it ended."""
    if ended.job in faulted and ended.state == "succeeded":
        return msgspec.structs.replace(ended, state="failed")
    return ended
