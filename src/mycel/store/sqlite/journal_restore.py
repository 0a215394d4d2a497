"""Reads back what a scheduler needs after a restart, without reading any result.

A block of which every task or no task has ended needs no look at its rows: SQLite counts
its entries in an index. Only of the blocks between are the indexes fetched.
"""

from __future__ import annotations

import gc
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from mycel.core.identifiers import JobNumber
from mycel.core.journal import (
    AttemptEnded,
    BlockAppended,
    GroupAdded,
    JobOpened,
    LeaseGranted,
    ProfileSeen,
    Restored,
    StoredBlock,
    StoredJob,
    WorkerMeasured,
)
from mycel.core.model.stages import TOO_MUCH

from .journal_writer import IMPOSSIBLE
from .stage_results import handed_results

# Arguments of a block whose tasks are all terminal are of no use to a scheduler, and may be
# megabytes: they stay on disk, where `Reader.arguments` finds them.
_BLOCKS = """
WITH counted AS MATERIALIZED (
    SELECT number, (
        SELECT count(*) FROM results
        WHERE results.job = blocks.job
        AND task_index >= first AND task_index < first + blocks.count) AS ended
    FROM blocks WHERE job IN (SELECT number FROM jobs))
SELECT job, batch, first, count, owner_epoch, appended_at, ended,
    CASE WHEN ended < count THEN arguments ELSE x'' END, group_number, digest
FROM counted JOIN blocks USING (number) ORDER BY number
"""

_JOBS = """
SELECT number, id, name, user, specification, created_at, idempotency_key, body_digest,
    stages, closed, state, ended_at
FROM jobs ORDER BY number
"""

_ATTEMPTS = f"""
SELECT ended_attempts.* FROM ended_attempts JOIN jobs ON jobs.number = job
WHERE NOT {IMPOSSIBLE} AND NOT EXISTS (
    SELECT 1 FROM results
    WHERE results.job = ended_attempts.job AND results.task_index = ended_attempts.task_index)
ORDER BY job, task_index, attempt
"""  # noqa: S608

_ADDRESSES = msgspec.json.Decoder(tuple[str, ...])
# The first half of each condition is what lets SQLite count in `results_unsuccessful`.
_TOTALS = """
SELECT pruned_failed + (
        SELECT count(*) FROM results WHERE state <> 'succeeded' AND state = 'failed'),
    pruned_cancelled + (
        SELECT count(*) FROM results WHERE state <> 'succeeded' AND state = 'cancelled'),
    pruned_succeeded + (SELECT count(*) FROM results)
        - (SELECT count(*) FROM results WHERE state <> 'succeeded'),
    max(pruned_job, coalesce((SELECT max(number) FROM jobs), 0))
FROM meta
"""


def restore(connection: sqlite3.Connection) -> Restored:
    with _without_collections():
        totals = connection.execute(_TOTALS).fetchone()
        jobs, groups, blocks = _jobs(connection), _groups(connection), _blocks(connection)
        return Restored(
            jobs=jobs,
            groups=groups,
            blocks=blocks,
            ended_attempts=_attempts(connection),
            leases=_leases(connection),
            last_job=totals[3],
            tasks_succeeded=totals[2],
            tasks_failed=totals[0],
            tasks_cancelled=totals[1],
            health=_health(connection),
            profiles=_profiles(connection),
            handed=handed_results(jobs, groups, blocks, partial(_values, connection)),
            file_bytes=_file_bytes(connection),
        )


def attempt_of_row(row: tuple[Any, ...]) -> AttemptEnded:
    fields = list(row)
    fields[5] = bool(row[5])
    return AttemptEnded(*fields)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Millions of new objects and no garbage: the collector would only walk over them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _jobs(connection: sqlite3.Connection) -> list[StoredJob]:
    return [
        StoredJob(JobOpened(*row[:9]), bool(row[9]), row[10], row[11])
        for row in connection.execute(_JOBS)
    ]


def _groups(connection: sqlite3.Connection) -> list[GroupAdded]:
    query = """SELECT * FROM groups WHERE job IN (SELECT number FROM jobs)
        ORDER BY job, number"""
    return [GroupAdded(*row) for row in connection.execute(query)]


def _blocks(connection: sqlite3.Connection) -> list[StoredBlock]:
    unsuccessful = _unsuccessful(connection)
    blocks = []
    for row in connection.execute(_BLOCKS):
        job, batch, first, count, owner_epoch, appended_at, ended, arguments, *more = row
        block = BlockAppended(job, batch, first, count, arguments, owner_epoch, appended_at, *more)
        empty = bytes(-(-count // 8))
        if ended == 0:
            blocks.append(StoredBlock(block, empty, empty, empty))
            continue
        failed = cancelled = empty
        if job in unsuccessful:
            failed = _bitmap(block, unsuccessful[job].get("failed", ()))
            cancelled = _bitmap(block, unsuccessful[job].get("cancelled", ()))
        terminal = _full(count) if ended == count else _terminal(connection, block)
        succeeded = _without(terminal, failed, cancelled) if job in unsuccessful else terminal
        blocks.append(StoredBlock(block, succeeded, failed, cancelled))
    return blocks


def _unsuccessful(connection: sqlite3.Connection) -> dict[JobNumber, dict[str, list[int]]]:
    """For each job and state the indexes of its tasks, in order."""
    found: dict[JobNumber, dict[str, list[int]]] = {}
    query = """SELECT job, state, task_index FROM results
        WHERE state <> 'succeeded' ORDER BY job, task_index"""
    for job, state, index in connection.execute(query):
        found.setdefault(job, {}).setdefault(state, []).append(index)
    return found


def _terminal(connection: sqlite3.Connection, block: BlockAppended) -> bytes:
    query = """SELECT task_index FROM results
        WHERE job = ? AND task_index >= ? AND task_index < ?"""
    parameters = (block.job, block.first, block.first + block.count)
    return _set_bits(block, [index for (index,) in connection.execute(query, parameters)])


def _bitmap(block: BlockAppended, indexes: Sequence[int]) -> bytes:
    start = bisect_left(indexes, block.first)
    end = bisect_left(indexes, block.first + block.count)
    return _set_bits(block, indexes[start:end])


def _set_bits(block: BlockAppended, indexes: Sequence[int]) -> bytes:
    bits = bytearray(-(-block.count // 8))
    first = block.first
    for index in indexes:
        place = index - first
        bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)


def _full(count: int) -> bytes:
    whole, rest = divmod(count, 8)
    return b"\xff" * whole + (bytes([(1 << rest) - 1]) if rest else b"")


def _without(bits: bytes, *others: bytes) -> bytes:
    value = int.from_bytes(bits, "little")
    for other in others:
        value &= ~int.from_bytes(other, "little")
    return value.to_bytes(len(bits), "little")


def _values(
    connection: sqlite3.Connection, job: JobNumber, first: int, end: int
) -> Iterator[tuple[int, bytes, bytes]]:
    query = """SELECT task_index, iif(value_size, zeroblob(?4), value), stdout
        FROM results INDEXED BY results_by_task
        WHERE job = ?1 AND task_index >= ?2 AND task_index < ?3 AND state = 'succeeded'
        ORDER BY task_index"""
    yield from connection.execute(query, (job, first, end, len(TOO_MUCH)))


def _attempts(connection: sqlite3.Connection) -> list[AttemptEnded]:
    return [attempt_of_row(row) for row in connection.execute(_ATTEMPTS)]


def _leases(connection: sqlite3.Connection) -> list[LeaseGranted]:
    query = "SELECT worker, lease, addresses FROM leases ORDER BY worker"
    return [
        LeaseGranted(worker, lease, _addresses(addresses))
        for worker, lease, addresses in connection.execute(query)
    ]


def _addresses(encoded: str) -> tuple[str, ...]:
    try:
        return _ADDRESSES.decode(encoded)
    except msgspec.MsgspecError:
        return ()  # the worker comes by itself


def _profiles(connection: sqlite3.Connection) -> list[ProfileSeen]:
    return [ProfileSeen(*row) for row in connection.execute("SELECT * FROM profiles ORDER BY kind")]


def _health(connection: sqlite3.Connection) -> list[WorkerMeasured]:
    query = "SELECT * FROM workers ORDER BY worker"
    return [WorkerMeasured(*row) for row in connection.execute(query)]


def _file_bytes(connection: sqlite3.Connection) -> dict[JobNumber, int]:
    query = """SELECT job, sum(value_size) FROM results
        WHERE value_size > 0 AND job IN (SELECT number FROM jobs) GROUP BY job ORDER BY job"""
    return dict(connection.execute(query))
