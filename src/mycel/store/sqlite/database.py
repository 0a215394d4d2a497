"""Opens the SQLite files of a node, and says clearly why one cannot be opened."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

import msgspec

from mycel.store.errors import (
    StoreBusy,
    StoreError,
    StoreMissing,
    StoreTooNew,
    StoreUnreadable,
    corrupt,
    foreign,
    translated,
)

QUICK_CHECK_BYTES_MAX: Final = 16 << 20
"""A larger file is not checked as a whole at the start: that would take longer than it."""
WAL_BYTES: Final = 8 << 20
WAL_CHECKPOINT_PAGES: Final = 1600
"""Below what fits into the preallocated WAL, so that it is reused and does not grow."""
CACHE_KIBIBYTES: Final = 8192
BUSY_SECONDS: Final = 5.0


class Format(msgspec.Struct, frozen=True):
    """A kind of database file."""

    what: str
    application_id: int
    version: int
    script: str
    """Creates the tables of an empty database."""
    migrations: tuple[str, ...] = ()
    """The n-th turns version n into version n + 1, counted from 1."""


def open_database(path: Path, form: Format) -> sqlite3.Connection:
    """Opens the file for writing, and creates it if there is none."""
    _check_access(path)
    _keep_private(path)
    try:
        connection = _connect(path)
    except sqlite3.Error as error:
        raise translated(error, path) from error
    try:
        _prepare(connection, path, form)
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, path) from error
    except StoreError:
        connection.close()
        raise
    return connection


def open_read_only(path: Path) -> sqlite3.Connection:
    """For a thread that only reads; the file exists and is known to be sound."""
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_SECONDS,
    )
    connection.execute("PRAGMA query_only = 1")
    return connection


def open_for_inspection(path: Path, form: Format) -> sqlite3.Connection:
    """Without changing anything; refuses what is not a database of this format and version."""
    if not path.exists():
        raise StoreMissing(f"there is no {path}: correct the path, or start the node once")
    try:
        connection = open_read_only(path)
        try:
            _check_header(connection, path, form)
            _check_version(connection, path, form)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise translated(error, path) from error
    return connection


def _check_version(connection: sqlite3.Connection, path: Path, form: Format) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < form.version:
        raise StoreBusy(
            f"{path} has schema version {version}, older than {form.version}: start the node "
            "once, which brings it up to date"
        )


def preallocate_wal(connection: sqlite3.Connection) -> None:
    """Makes later commits overwrite blocks that the WAL already has, so that a sync has no
    metadata to write (0.1 ms less each).

    A transaction larger than its cache spills into the WAL; rolled back, it leaves the length
    there and nothing in the database. Committing and dropping it costs three syncs and makes
    the database itself longer.
    """
    connection.execute("PRAGMA cache_size = 10")
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("CREATE TABLE filler (content BLOB)")
        connection.execute("INSERT INTO filler VALUES (zeroblob(?))", (WAL_BYTES,))
    finally:
        if connection.in_transaction:  # a full disk has already ended it
            connection.execute("ROLLBACK")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()


def _check_access(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise StoreMissing(f"the folder {folder} does not exist: create it or correct the path")
    if path.is_dir():
        raise foreign(path, "is a folder")
    readable_and_writable = os.R_OK | os.W_OK
    for place, needed in ((folder, readable_and_writable | os.X_OK), (path, readable_and_writable)):
        if place.exists() and not os.access(place, needed):
            raise StoreUnreadable(f"{place} is closed to this user: let it read and write there")


def _keep_private(path: Path) -> None:
    """For its owner alone: a journal has a secret in it, a spool proofs of what a worker was
    given. SQLite gives the files beside it the same rights."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for suffix in ("", "-wal", "-shm"):
            place = path.with_name(path.name + suffix)
            if place.exists() and place.stat().st_mode & 0o077:
                place.chmod(0o600)
    except OSError as error:
        raise StoreUnreadable(f"{path} cannot be kept from others: {error.strerror}") from error


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_SECONDS,
        cached_statements=64,
    )


def _prepare(connection: sqlite3.Connection, path: Path, form: Format) -> None:
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables:
        _check_header(connection, path, form)
        if path.stat().st_size <= QUICK_CHECK_BYTES_MAX:
            _check_quickly(connection, path)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreBusy(f"{path} cannot keep a write-ahead log: another process may hold it")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
    connection.execute("PRAGMA temp_store = MEMORY")
    if not tables:
        connection.executescript(
            f"BEGIN IMMEDIATE; PRAGMA application_id = {form.application_id};"
            f"PRAGMA user_version = {form.version}; {form.script}; COMMIT;"
        )
    else:
        _migrate(connection, form)


def _migrate(connection: sqlite3.Connection, form: Format) -> None:
    """All steps in one transaction: a crash leaves the old version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    steps = form.migrations[version - 1 :]
    if not steps:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in ";".join(steps).split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {form.version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_header(connection: sqlite3.Connection, path: Path, form: Format) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != form.application_id:
        raise foreign(path, f"is a database, but not {form.what}")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > form.version:
        raise StoreTooNew(
            f"{path} has schema version {version}, and this Mycel knows up to {form.version}: "
            "start the newer Mycel that wrote it"
        )


def _check_quickly(connection: sqlite3.Connection, path: Path) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise corrupt(path, verdict)
