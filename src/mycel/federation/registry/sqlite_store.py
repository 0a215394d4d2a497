"""Records of clusters in SQLite: one row each, as JSON, so that a newer version can read them."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.core.federation.registration import ClusterRecord, HashedSecret, RegistrationError

VERSION: Final = 1
BUSY_SECONDS: Final = 30.0
"""Commands write briefly, so whoever comes second waits."""
_SCHEMA: Final = """
CREATE TABLE clusters (name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE shared (key TEXT PRIMARY KEY, secret BLOB NOT NULL) WITHOUT ROWID;
"""


class StoreUnusable(RegistrationError):
    """The file is damaged, or of a later version."""


class SqliteStore:
    def __init__(self, path: Path) -> None:
        self._path = path
        # Made before SQLite opens it, so that nobody else may ever read it.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        self._database = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._lock = threading.RLock()
        with self._changing():
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version = {VERSION}")
            elif version != VERSION:
                raise StoreUnusable(f"{path} is of version {version}; this Mycel knows {VERSION}")

    def add(self, record: ClusterRecord) -> bool:
        return self._changes(
            "INSERT INTO clusters VALUES (?, ?) ON CONFLICT DO NOTHING",
            record.name,
            msgspec.json.encode(record),
        )

    def replace(self, record: ClusterRecord) -> bool:
        return self._changes(
            "UPDATE clusters SET record = ? WHERE name = ?",
            msgspec.json.encode(record),
            record.name,
        )

    def remove(self, name: str) -> bool:
        return self._changes("DELETE FROM clusters WHERE name = ?", name)

    def get(self, name: str) -> ClusterRecord | None:
        rows = self._rows("SELECT record FROM clusters WHERE name = ?", name)
        return self._record(rows[0][0]) if rows else None

    def all(self) -> list[ClusterRecord]:
        return [self._record(row[0]) for row in self._rows("SELECT record FROM clusters")]

    def put_shared(self, key: str, secret: HashedSecret) -> None:
        self._changes("REPLACE INTO shared VALUES (?, ?)", key, msgspec.json.encode(secret))

    def shared(self, key: str) -> HashedSecret | None:
        rows = self._rows("SELECT secret FROM shared WHERE key = ?", key)
        return msgspec.json.decode(rows[0][0], type=HashedSecret) if rows else None

    def remove_shared(self, key: str) -> bool:
        return self._changes("DELETE FROM shared WHERE key = ?", key)

    def close(self) -> None:
        self._database.close()

    def _record(self, data: bytes) -> ClusterRecord:
        try:
            return msgspec.json.decode(data, type=ClusterRecord)
        except msgspec.DecodeError as error:
            raise StoreUnusable(f"{self._path}: a record cannot be read: {error}") from None

    def _changes(self, statement: str, *values: Any) -> bool:
        with self._changing():
            return self._database.execute(statement, values).rowcount > 0

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        with self._told_apart():
            return self._database.execute(statement, values).fetchall()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._told_apart():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    @contextmanager
    def _told_apart(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            raise StoreUnusable(f"{self._path} cannot be used: {error}") from None
