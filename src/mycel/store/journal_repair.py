"""Mends what `checking` finds and a scheduler can do without; what is lost by it is said.

Only while no scheduler runs: whoever calls it holds the lock of the folder.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from mycel.store.sqlite.database import open_database
from mycel.store.sqlite.journal_writer import IMPOSSIBLE
from mycel.store.sqlite.schema import JOURNAL_FORMAT

from .errors import translated
from .long_values import ValueFiles

# Only a constant of this package is put into these texts.
_ENDED = f"""DELETE FROM ended_attempts WHERE {IMPOSSIBLE}
    RETURNING job, task_index, attempt"""  # noqa: S608
_RESULTS = f"""SELECT sequence, job, task_index, attempt, value_size FROM results
    WHERE {IMPOSSIBLE}"""  # noqa: S608


def repair(path: Path) -> list[str]:
    """What was mended, one line for each."""
    connection = open_database(path, JOURNAL_FORMAT)
    try:
        connection.execute("BEGIN IMMEDIATE")
        mended = [*_attempts(connection), *_results(connection, path)]
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise translated(error, path) from error
    finally:
        connection.close()
    return mended


def _attempts(connection: sqlite3.Connection) -> Iterator[str]:
    for job, index, attempt in connection.execute(_ENDED).fetchall():
        yield f"attempt {attempt} of task {index} of job {job} is forgotten: nobody has given it"


def _results(connection: sqlite3.Connection, path: Path) -> Iterator[str]:
    """The result stays, and loses the number that its attempt cannot have had."""
    files = ValueFiles(path)
    for sequence, job, index, attempt, size in connection.execute(_RESULTS).fetchall():
        if size:
            files.path(job, index, attempt).replace(files.path(job, index, 0))
        connection.execute("UPDATE results SET attempt = 0 WHERE sequence = ?", (sequence,))
        yield f"the result of task {index} of job {job} is not attempt {attempt}'s any more"
