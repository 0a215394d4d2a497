"""Reads committed state beside the writer, over a few read-only connections."""

from __future__ import annotations

import queue
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.core.identifiers import JobId
from mycel.core.journal import AttemptEnded, GroupAdded, JobOpened, TaskEnded
from mycel.store.errors import JournalBroken, translated
from mycel.store.interface import DefinedBlock, End, JobDefinition, JobRow, Lines, Result
from mycel.store.long_values import ValueFiles
from mycel.store.result_lines import LINE_SQL, lines_of

from .database import open_read_only
from .journal_restore import attempt_of_row

CONNECTIONS_MAX: Final = 4
RESULT_BYTES_MAX: Final = 4 << 20
"""Of values and outputs in one answer; a single larger one still comes."""

_JOB_ROWS: Final = """
SELECT number, id, name, user, specification, created_at, idempotency_key, body_digest,
    stages, closed, state, ended_at,
    (SELECT coalesce(sum(count), 0) FROM blocks WHERE blocks.job = jobs.number),
    (SELECT count(*) FROM results WHERE results.job = jobs.number),
    (SELECT count(*) FROM results
        WHERE results.job = jobs.number AND state <> 'succeeded' AND state = 'failed'),
    (SELECT count(*) FROM results
        WHERE results.job = jobs.number AND state <> 'succeeded' AND state = 'cancelled')
FROM jobs
"""
_NUMBER: Final = "(SELECT number FROM jobs WHERE id = ?1)"
# Only constants of this module are put together here; what users send is always a parameter.
_RESULT: Final = f"SELECT * FROM results WHERE job = {_NUMBER} AND task_index = ?2"  # noqa: S608
_VALUE: Final = f"""
SELECT substr(value, ?3, ?4), job, attempt, value_size FROM results
WHERE job = {_NUMBER} AND task_index = ?2
"""  # noqa: S608
_RESULTS: Final = f"""
SELECT * FROM results INDEXED BY results_by_job
WHERE job = {_NUMBER} AND sequence > ?2 ORDER BY sequence LIMIT ?3
"""  # noqa: S608
_ENDS: Final = """
SELECT sequence, jobs.id, jobs.name, jobs.user, task_index, results.state, reason,
    results.number, worker, exit_code, error, results.ended_at,
    CASE WHEN jobs.state <> '' AND sequence = (
        SELECT max(sequence) FROM results AS last WHERE last.job = results.job)
    THEN jobs.state ELSE '' END
FROM results JOIN jobs ON jobs.number = job
WHERE ?1 IS ?1 AND sequence > ?2 {of_job} ORDER BY sequence LIMIT ?3
"""
# Rows of a job that was pruned go step by step; they are out of sight at once.
_SEQUENCES: Final = """
SELECT max(pruned_sequence, coalesce((
        SELECT max(sequence) FROM results WHERE job IN (SELECT number FROM pruned_jobs)), 0)),
    max(pruned_sequence, coalesce((SELECT max(sequence) FROM results), 0))
FROM meta
"""
_SIZE: Final = f"""
SELECT count(*), max(sequence), sum(length(value) + length(error)) FROM (
    SELECT sequence, value, error FROM results INDEXED BY results_by_job
    WHERE job = {_NUMBER} AND sequence > ?2 ORDER BY sequence LIMIT ?3)
"""  # noqa: S608
# As a blob: nobody need look through the text again. The order of rows is the index's.
_LINES: Final = f"""
SELECT CAST(group_concat(line, '') AS BLOB) FROM (
    SELECT {LINE_SQL} AS line FROM results INDEXED BY results_by_job
    WHERE job = {_NUMBER} AND sequence > ?2 AND sequence <= ?3 ORDER BY sequence)
"""  # noqa: S608
_RESULTS_BY_INDEX: Final = f"""
SELECT * FROM results INDEXED BY results_by_task
WHERE job = {_NUMBER} AND task_index >= ?2 AND task_index < ?2 + ?3 ORDER BY task_index
"""  # noqa: S608
_ATTEMPTS: Final = f"""
SELECT * FROM ended_attempts WHERE job = {_NUMBER} AND task_index = ?2 ORDER BY attempt
"""  # noqa: S608
_BLOCK: Final = f"""
SELECT first, count, arguments FROM blocks
WHERE job = {_NUMBER} AND first <= ?2 ORDER BY first DESC LIMIT 1
"""  # noqa: S608
_BLOCKS: Final = f"""
SELECT first, count, arguments FROM blocks
WHERE job = {_NUMBER} AND first < ?2 + ?3 AND first + count > ?2 ORDER BY first
"""  # noqa: S608
_GROUPS: Final = f"""
SELECT job, number, stage, specification FROM groups WHERE job = {_NUMBER} ORDER BY number
"""  # noqa: S608
_DEFINED: Final = f"""
SELECT group_number, first, count, arguments FROM blocks WHERE job = {_NUMBER} ORDER BY first
"""  # noqa: S608
_UNSUCCESSFUL: Final = f"""
SELECT task_index FROM results INDEXED BY results_unsuccessful
WHERE job = {_NUMBER} AND state <> 'succeeded' ORDER BY task_index
"""  # noqa: S608
_RAW_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])

Row = tuple[Any, ...]


class SqliteReader:
    """`store.interface.Reader` over a journal's file. A fifth thread at a time waits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values = ValueFiles(path)
        self._free: queue.LifoQueue[sqlite3.Connection | None] = queue.LifoQueue()
        for _ in range(CONNECTIONS_MAX):
            self._free.put(None)
        self._closed = False

    def close(self) -> None:
        """Waits for the reads under way."""
        self._closed = True
        for _ in range(CONNECTIONS_MAX):
            connection = self._free.get()
            if connection is not None:
                connection.close()
        for _ in range(CONNECTIONS_MAX):
            self._free.put(None)

    def job(self, job: JobId) -> JobRow | None:
        with self._connection() as connection:
            row = connection.execute(f"{_JOB_ROWS} WHERE id = ?", (job,)).fetchone()
        return None if row is None else _job_row(row)

    def definition(self, job: JobId) -> JobDefinition | None:
        row = self.job(job)
        if row is None:
            return None
        with self._connection() as connection:
            groups = [GroupAdded(*one) for one in connection.execute(_GROUPS, (job,))]
            ended = [index for (index,) in connection.execute(_UNSUCCESSFUL, (job,))]
            blocks = connection.execute(_DEFINED, (job,)).fetchall()
        return JobDefinition(row.opened, groups, [_defined(one, ended) for one in blocks])

    def jobs(self, *, before: JobId | None, limit: int) -> list[JobRow]:
        condition = f"WHERE number < {_NUMBER}" if before is not None else "WHERE ?1 IS NULL"
        query = f"{_JOB_ROWS} {condition} ORDER BY number DESC LIMIT ?2"
        with self._connection() as connection:
            return [_job_row(row) for row in connection.execute(query, (before, limit))]

    def find_jobs(self, prefix: str, limit: int, ending: str = "") -> list[JobId]:
        # Every character of an id is below the last one of ASCII.
        query = """
            SELECT id FROM jobs WHERE id >= ?1 AND id < ?2
            AND (?3 = '' OR substr(id, -length(?3)) = ?3) ORDER BY id LIMIT ?4"""
        parameters = (prefix, prefix + "\x7f", ending, limit)
        with self._connection() as connection:
            found = connection.execute(query, parameters).fetchall()
        return [JobId(job) for (job,) in found]

    def result(self, job: JobId, index: int) -> Result | None:
        with self._connection() as connection:
            row = connection.execute(_RESULT, (job, index)).fetchone()
        return None if row is None else _result(row)

    def results(self, job: JobId, *, after: int, limit: int) -> list[Result]:
        return self._results(_RESULTS, (job, after, limit))

    def lines(self, job: JobId, *, after: int, limit: int) -> Lines:
        with self._connection() as connection:
            count, last, size = connection.execute(_SIZE, (job, after, limit)).fetchone()
            if not count:
                return Lines(b"", 0, after)
            if size <= RESULT_BYTES_MAX:
                (encoded,) = connection.execute(_LINES, (job, after, last)).fetchone()
                return Lines(encoded, count, last)
        return lines_of(self.results(job, after=after, limit=limit), after)

    def ends(self, *, after: int, limit: int, job: JobId | None = None) -> list[End]:
        of_job = "" if job is None else f"AND job = {_NUMBER}"
        query = _ENDS.format(of_job=of_job)
        with self._connection() as connection:
            return [End(*row) for row in connection.execute(query, (job, after, limit))]

    def sequences(self) -> tuple[int, int]:
        with self._connection() as connection:
            pruned, last = connection.execute(_SEQUENCES).fetchone()
        return pruned, last

    def results_by_index(self, job: JobId, *, first: int, limit: int) -> list[Result]:
        return self._results(_RESULTS_BY_INDEX, (job, first, limit))

    def value(self, job: JobId, index: int, *, offset: int, length: int) -> bytes:
        with self._connection() as connection:
            row = connection.execute(_VALUE, (job, index, offset + 1, length)).fetchone()
        if row is None:
            return b""
        value, number, attempt, size = row
        if not size:
            return bytes(value)
        return self._values.read(number, index, attempt, offset, length)

    def ended_attempts(self, job: JobId, index: int) -> list[AttemptEnded]:
        with self._connection() as connection:
            return [attempt_of_row(row) for row in connection.execute(_ATTEMPTS, (job, index))]

    def arguments(self, job: JobId, index: int) -> bytes:
        with self._connection() as connection:
            row = connection.execute(_BLOCK, (job, index)).fetchone()
        return b"" if row is None else arguments_of(row[2], index - row[0])

    def arguments_by_index(self, job: JobId, *, first: int, limit: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        size = 0
        with self._connection() as connection:
            for start, count, array in connection.execute(_BLOCKS, (job, first, limit)):
                elements = _RAW_ARRAY.decode(array) if array else []
                for index in range(max(start, first), min(start + count, first + limit)):
                    if index - start >= len(elements):
                        break
                    found[index] = bytes(elements[index - start])
                    size += len(found[index])
                    if size > RESULT_BYTES_MAX:
                        return found
        return found

    def _results(self, query: str, parameters: Row) -> list[Result]:
        found: list[Result] = []
        size = 0
        with self._connection() as connection:
            for row in connection.execute(query, parameters):
                result = _result(row)
                size += size_of(result.ended)
                if found and size > RESULT_BYTES_MAX:
                    break
                found.append(result)
        return found

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = self._free.get()
        try:
            if self._closed:
                raise JournalBroken(None)
            if connection is None:
                connection = open_read_only(self._path)
            yield connection
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
        finally:
            self._free.put(connection)


def _defined(row: Row, ended: list[int]) -> DefinedBlock:
    group, first, count, arguments = row
    begin, end = bisect_left(ended, first), bisect_left(ended, first + count)
    return DefinedBlock(group, first, count, arguments, tuple(ended[begin:end]))


def arguments_of(array: bytes, place: int) -> bytes:
    """One element of a JSON array, as it stands there."""
    if not array:
        return b""
    elements = _RAW_ARRAY.decode(array)
    return bytes(elements[place]) if 0 <= place < len(elements) else b""


def size_of(ended: TaskEnded) -> int:
    return len(ended.value) + len(ended.stdout) + len(ended.stderr)


def _result(row: Row) -> Result:
    return Result(row[0], TaskEnded(*row[1:]))


def _job_row(row: Row) -> JobRow:
    *opened, closed, state, ended_at, tasks, ended, failed, cancelled = row
    return JobRow(
        opened=JobOpened(*opened),
        closed=bool(closed),
        state=state,
        ended_at=ended_at,
        tasks=tasks,
        succeeded=ended - failed - cancelled,
        failed=failed,
        cancelled=cancelled,
    )
