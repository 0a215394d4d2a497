"""Is a journal what it should be? Read without changing anything, beside a running scheduler too.

SQLite's own check comes first, then the journal's rules, then every digest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import msgspec
from blake3 import blake3

from mycel.core.journal_codec import UNREADABLE, decode_specification
from mycel.store.sqlite.database import open_for_inspection
from mycel.store.sqlite.journal_writer import IMPOSSIBLE
from mycel.store.sqlite.schema import JOURNAL_FORMAT

from .errors import translated
from .long_values import Place, ValueFiles

COMPLAINTS_MAX: Final = 100
PIECE_BYTES: Final = 1 << 20

_SPECIFICATIONS: Final = """SELECT id, specification FROM jobs
UNION ALL SELECT id, groups.specification FROM groups JOIN jobs ON jobs.number = groups.job"""

# Each finds rows that must not be: a text for people, with the row's own columns put in.
_RULES: Final[tuple[tuple[str, str], ...]] = (
    (
        "task {1} of job {0} has a result, and no job or block has such a task",
        """SELECT job, task_index FROM results WHERE job NOT IN (SELECT number FROM pruned_jobs)
        AND NOT EXISTS (SELECT 1 FROM blocks JOIN jobs ON jobs.number = blocks.job
            WHERE blocks.job = results.job
            AND task_index >= first AND task_index < first + count)""",
    ),
    (
        "task {1} of job {0} ended under owner epoch {2}, its block has {3}",
        """SELECT results.job, task_index, results.owner_epoch, blocks.owner_epoch
        FROM results JOIN blocks ON blocks.job = results.job
            AND task_index >= first AND task_index < first + count
        WHERE results.owner_epoch <> blocks.owner_epoch""",
    ),
    (
        "task {1} of job {0} ended as {2!r}",
        """SELECT job, task_index, state FROM results
        WHERE state NOT IN ('succeeded', 'failed', 'cancelled')""",
    ),
    (
        "task {1} of job {0} took the result of attempt {2}, and attempt {3} had ended before",
        """SELECT results.job, results.task_index, results.attempt, ended_attempts.attempt
        FROM results JOIN ended_attempts USING (job, task_index)
        WHERE ended_attempts.attempt >= results.attempt""",
    ),
    (
        (
            "attempt {2} of task {1} of job {0} has ended, and no boot of this journal can have "
            "given it: mend it with `mycel store check --repair`"
        ),
        f"SELECT job, task_index, attempt FROM ended_attempts WHERE {IMPOSSIBLE}",  # noqa: S608
    ),
    (
        (
            "task {1} of job {0} took the result of attempt {2}, which no boot of this journal can "
            "have given: mend it with `mycel store check --repair`"
        ),
        f"SELECT job, task_index, attempt FROM results WHERE {IMPOSSIBLE}",  # noqa: S608
    ),
    (
        "an attempt of task {1} of job {0} has ended, and no block has such a task",
        """SELECT job, task_index FROM ended_attempts
        WHERE job NOT IN (SELECT number FROM pruned_jobs)
        AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocks.job = ended_attempts.job
            AND task_index >= first AND task_index < first + count)""",
    ),
    (
        "batch {1} of job {0} begins at task {2} instead of {3}",
        """SELECT job, batch, first, coalesce(due, 0) FROM (
            SELECT job, batch, first,
                lag(first + count) OVER (PARTITION BY job ORDER BY first) AS due FROM blocks)
        WHERE first <> coalesce(due, 0)""",
    ),
    (
        "job {0} is {1}, and {2} of its {3} tasks have ended",
        """SELECT id, state, ended, tasks FROM (
            SELECT id, state, closed,
                (SELECT count(*) FROM results WHERE job = jobs.number) AS ended,
                (SELECT coalesce(sum(count), 0) FROM blocks WHERE job = jobs.number) AS tasks
            FROM jobs) WHERE state <> '' AND (ended <> tasks OR NOT closed)""",
    ),
    (
        "job {0} is closed and all of its tasks have ended, and it has not",
        """SELECT id FROM jobs WHERE closed AND state = ''
        AND (SELECT count(*) FROM results WHERE job = jobs.number)
            = (SELECT coalesce(sum(count), 0) FROM blocks WHERE job = jobs.number)""",
    ),
)


class Verdict(msgspec.Struct, frozen=True):
    path: str
    swarm: str
    schema: int
    jobs: int
    results: int
    values_in_files: int
    stray_files: int
    """That nothing refers to; the next start removes them."""
    complaints: list[str]
    """At most a hundred."""

    @property
    def is_sound(self) -> bool:
        return not self.complaints


def check(path: Path) -> Verdict:
    """Raises `StoreUnusable` if the file cannot be read as a journal at all."""
    connection = open_for_inspection(path, JOURNAL_FORMAT)
    try:
        connection.execute("BEGIN")
        return _verdict(connection, path)
    except sqlite3.Error as error:
        raise translated(error, path) from error
    finally:
        connection.close()


def _verdict(connection: sqlite3.Connection, path: Path) -> Verdict:
    files = ValueFiles(path)
    referred: set[Place] = set()
    found = chain(
        _of_sqlite(connection),
        _of_rules(connection),
        _of_specifications(connection),
        _of_values(connection, files, referred),
    )
    complaints = list(islice(found, COMPLAINTS_MAX))
    (swarm,) = connection.execute("SELECT swarm FROM meta").fetchone()
    return Verdict(
        path=str(path),
        swarm=swarm,
        schema=JOURNAL_FORMAT.version,
        jobs=connection.execute("SELECT count(*) FROM jobs").fetchone()[0],
        results=connection.execute("SELECT count(*) FROM results").fetchone()[0],
        values_in_files=len(referred),
        stray_files=sum(place not in referred for place in files.places()),
        complaints=complaints,
    )


def _of_sqlite(connection: sqlite3.Connection) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({COMPLAINTS_MAX})"):
        if line != "ok":
            yield f"SQLite says: {line}"


def _of_rules(connection: sqlite3.Connection) -> Iterator[str]:
    for text, query in _RULES:
        for row in connection.execute(query):
            yield text.format(*row)


def _of_specifications(connection: sqlite3.Connection) -> Iterator[str]:
    for job, encoded in connection.execute(_SPECIFICATIONS):
        try:
            decode_specification(encoded)
        except UNREADABLE as error:
            yield f"what job {job} runs cannot be read: {error}"


def _of_values(
    connection: sqlite3.Connection, files: ValueFiles, referred: set[Place]
) -> Iterator[str]:
    query = "SELECT job, task_index, attempt, value, digest, value_size FROM results"
    for job, index, attempt, value, digest, size in connection.execute(query):
        task = f"task {index} of job {job}"
        if size:
            referred.add((job, index, attempt))
            yield from _of_file(files, (job, index, attempt), digest, size, task)
        elif value and digest and blake3(value).digest() != digest:
            yield f"the value of {task} does not fit its digest"


def _of_file(files: ValueFiles, place: Place, digest: bytes, size: int, task: str) -> Iterator[str]:
    path = files.path(*place)
    hasher: Any = blake3()
    read = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                hasher.update(piece)
                read += len(piece)
    except OSError as error:
        yield f"the file with the value of {task} cannot be read: {path}: {error.strerror}"
        return
    if read != size:
        yield f"the file with the value of {task} has {read} bytes instead of {size}: {path}"
    elif hasher.digest() != digest:
        yield f"the file with the value of {task} does not fit its digest: {path}"
