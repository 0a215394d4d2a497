"""Whose the blobs of a scheduler are, in a small database beside them.

    uploads     a user has brought this blob: it may be read by that user, and stays for a day
    uses        a job needs it, or brought it forth: it may be read by the job's user and by
                workers that hold one of its tasks, and stays as long as the job is remembered
    kept        a job brought it forth, and it lies with a worker
    outputs     the list of what an attempt left, as a blob
    jobs        those of which there is anything here
    keys        by which workers know who may read from their caches, see `tickets`

A blob is neither given away nor deleted by its digest alone. All calls block: one thread makes
them, so that nothing is deleted between the look at it and the note that it is needed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

import msgspec

from .digests import Digest

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS uploads (
    digest TEXT NOT NULL, user TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (digest, user)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uses (
    job TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (job, digest)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS uses_by_digest ON uses (digest);
CREATE TABLE IF NOT EXISTS kept (
    job TEXT NOT NULL, digest TEXT NOT NULL, worker TEXT NOT NULL, PRIMARY KEY (job, digest)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS kept_by_digest ON kept (digest);
CREATE TABLE IF NOT EXISTS outputs (
    job TEXT NOT NULL, task_index INTEGER NOT NULL, attempt INTEGER NOT NULL,
    digest TEXT NOT NULL, files INTEGER NOT NULL, size INTEGER NOT NULL, worker TEXT NOT NULL,
    PRIMARY KEY (job, task_index, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS keys (worker TEXT PRIMARY KEY, key BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs (job TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID
"""


class OutputsRecord(msgspec.Struct, frozen=True):
    job: str
    index: int
    attempt: int
    digest: str
    """Of the list."""
    files: int
    size: int
    """Bytes, of all files."""
    worker: str = ""
    """Where the files lie, if not here."""


class BlobClaims:
    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        self._database.close()

    # Writing: durable when it returns

    def uploaded(self, digests: Iterable[str], user: str, now: float) -> None:
        rows = [(digest, user, now) for digest in digests]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO uploads VALUES (?, ?, ?)", rows)

    def used(self, job: str, digests: Iterable[str], now: float) -> None:
        with self._transaction():
            self._use(job, digests, now)

    def _use(self, job: str, digests: Iterable[str], now: float) -> None:
        self._database.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?)", (job, now))
        self._database.executemany(
            "INSERT OR IGNORE INTO uses VALUES (?, ?)", [(job, digest) for digest in digests]
        )

    def kept(self, job: str, places: Iterable[tuple[str, str]], now: float) -> None:
        """Digests, each with the worker that has it."""
        with self._transaction():
            self._keep(job, places, now)

    def _keep(self, job: str, places: Iterable[tuple[str, str]], now: float) -> None:
        self._database.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?)", (job, now))
        rows = [(job, digest, worker) for digest, worker in places]
        self._database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)

    def put_out(self, record: OutputsRecord, files: Iterable[str], now: float) -> None:
        """An attempt has left this. Its files are noted already, unless a worker keeps them."""
        with self._transaction():
            self._use(record.job, [record.digest], now)
            if record.worker:
                self._keep(record.job, [(digest, record.worker) for digest in files], now)
            row = msgspec.structs.astuple(record)
            self._database.execute("INSERT OR REPLACE INTO outputs VALUES (?,?,?,?,?,?,?)", row)

    def key_of(self, worker: str, key: bytes) -> None:
        self._database.execute("INSERT OR REPLACE INTO keys VALUES (?, ?)", (worker, key))

    # Reading

    def keys(self) -> dict[str, bytes]:
        return dict(self._database.execute("SELECT worker, key FROM keys"))

    def uploaders(self, digest: str) -> list[str]:
        return self._column("SELECT user FROM uploads WHERE digest = ?", digest)

    def jobs_of(self, digest: str) -> list[str]:
        return self._column("SELECT job FROM uses WHERE digest = ?", digest)

    def is_used(self, job: str, digest: str) -> bool:
        query = "SELECT job FROM uses WHERE job = ? AND digest = ?"
        return bool(self._column(query, job, digest))

    def keepers(self, digest: str) -> list[tuple[str, str]]:
        """Jobs with a right to it, each with the worker that has it."""
        query = "SELECT job, worker FROM kept WHERE digest = ?"
        return self._database.execute(query, (digest,)).fetchall()

    def keeper(self, job: str, digest: str) -> str:
        query = "SELECT worker FROM kept WHERE job = ? AND digest = ?"
        return next(iter(self._column(query, job, digest)), "")

    def outputs(self, job: str, index: int, attempt: int) -> OutputsRecord | None:
        query = "SELECT * FROM outputs WHERE job = ? AND task_index = ? AND attempt = ?"
        row = self._database.execute(query, (job, index, attempt)).fetchone()
        return None if row is None else OutputsRecord(*row)

    def outputs_of_job(self, job: str, first: int, limit: int) -> list[OutputsRecord]:
        """Of all attempts of the tasks `first` … `first + limit - 1`."""
        query = "SELECT * FROM outputs WHERE job = ? AND task_index >= ? AND task_index < ?"
        rows = self._database.execute(query, (job, first, first + limit))
        return [OutputsRecord(*row) for row in rows]

    # Forgetting

    def forget(
        self, is_known: Callable[[str], bool], uploads_before: float, jobs_before: float
    ) -> None:
        """Uploads that nobody came back for, and all that belongs to jobs that are gone. A job
        may be noted here a moment before it is known."""
        query = "SELECT job FROM jobs WHERE at < ?"
        gone = [(job,) for job in self._column(query, jobs_before) if not is_known(job)]
        with self._transaction():
            self._database.execute("DELETE FROM uploads WHERE at < ?", (uploads_before,))
            for table in ("uses", "kept", "outputs", "jobs"):
                self._database.executemany(f"DELETE FROM {table} WHERE job = ?", gone)  # noqa: S608

    def unwanted(self, digests: Collection[Digest]) -> list[Digest]:
        """Those that neither a user nor a job has a claim on."""
        query = "SELECT digest FROM uploads UNION SELECT digest FROM uses"
        wanted = set(self._column(query))
        return [digest for digest in digests if digest not in wanted]

    def _column(self, query: str, *parameters: object) -> list[str]:
        return [row[0] for row in self._database.execute(query, parameters)]

    def _transaction(self) -> _Transaction:
        return _Transaction(self._database)


class _Transaction:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")
