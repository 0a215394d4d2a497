"""A worker's own durable state: its boot number, and results that nobody acknowledged yet.

Small and rarely written: results come here only when their acknowledgement is late, when a
connection is lost and at shutdown. Full, it refuses further results; the task then runs
again elsewhere, which is what at-least-once execution is for.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mycel.store.sqlite.database import Format, open_database

from .errors import JournalBroken, concerns_entry_alone, translated

SPOOL_BYTES_MAX: Final = 256 << 20

Record = tuple[str, int, bytes]
"""The scheduler's peer id, the attempt, and the result as it will be sent again."""

_FORMAT: Final = Format(
    what="a worker's spool",
    application_id=0x4D594353,  # "MYCS"
    version=1,
    script="""
CREATE TABLE meta (only INTEGER PRIMARY KEY CHECK (only = 1), boot INTEGER NOT NULL);
INSERT INTO meta VALUES (1, 0);
CREATE TABLE results (
    scheduler TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (scheduler, attempt)
)
""",
)


class Spool:
    """Blocking and thread-safe."""

    def __init__(self, path: Path, *, bytes_max: int = SPOOL_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._connection = open_database(path, _FORMAT)
        self._closed = False
        query = "SELECT coalesce(sum(length(payload)), 0) FROM results"
        with self._transaction() as connection:
            self._bytes: int = connection.execute(query).fetchone()[0]

    def raise_boot(self) -> int:
        """Durably raises the boot number and returns it."""
        with self._transaction() as connection:
            statement = "UPDATE meta SET boot = boot + 1 RETURNING boot"
            boot: int = connection.execute(statement).fetchall()[0][0]
        return boot

    def keep(self, records: Sequence[Record]) -> list[Record]:
        """Durably keeps the records, and returns those for which there is no room, or which no
        row can hold.

        A record that is already kept is replaced.
        """
        refused: list[Record] = []
        with self._transaction() as connection:
            size = self._bytes
            for record in records:
                try:
                    grown = size + len(record[2]) - self._kept_bytes(record)
                    if grown > self._bytes_max:
                        refused.append(record)
                        continue
                    connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", record)
                except Exception as error:
                    if not concerns_entry_alone(error):
                        raise
                    refused.append(record)
                else:
                    size = grown
            self._bytes = size
        return refused

    def drop(self, scheduler: str, attempts: Iterable[int]) -> None:
        """Forgets acknowledged results; those that are not kept do not matter."""
        with self._transaction() as connection:
            size = self._bytes
            for attempt in attempts:
                size -= self._kept_bytes((scheduler, attempt, b""))
                connection.execute(
                    "DELETE FROM results WHERE scheduler = ? AND attempt = ?", (scheduler, attempt)
                )
            self._bytes = size

    def load(self) -> list[Record]:
        """All that is kept, by scheduler and attempt, whether it can be read or not."""
        query = """SELECT CAST(scheduler AS BLOB), attempt, CAST(payload AS BLOB) FROM results
            ORDER BY scheduler, attempt"""
        with self._transaction() as connection:
            rows = connection.execute(query).fetchall()
        return [(scheduler.decode(errors="replace"), *rest) for scheduler, *rest in rows]

    def set_aside(self, scheduler: str, attempt: int) -> str:
        """Takes a record that nobody can read out of the way of the others; the file that it is
        in from now on."""
        query = "DELETE FROM results WHERE scheduler = ? AND attempt = ? RETURNING payload"
        folder = self._path.with_name(f"{self._path.name}.unreadable")
        folder.mkdir(mode=0o700, exist_ok=True)
        place = folder / f"{''.join(filter(str.isalnum, scheduler))}.{attempt}"
        with self._transaction() as connection:
            for (payload,) in connection.execute(query, (scheduler, attempt)).fetchall():
                place.write_bytes(payload if isinstance(payload, bytes) else str(payload).encode())
                self._bytes -= len(payload)
        return str(place)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()

    def _kept_bytes(self, record: Record) -> int:
        query = "SELECT length(payload) FROM results WHERE scheduler = ? AND attempt = ?"
        found = self._connection.execute(query, record[:2]).fetchone()
        return 0 if found is None else int(found[0])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._closed:
                raise JournalBroken(None)
            try:
                with self._connection:
                    self._connection.execute("BEGIN IMMEDIATE")
                    yield self._connection
            except sqlite3.Error as error:
                raise translated(error, self._path) from error


class MemorySpool:
    """The twin for simulation. It outlives a simulated crash as it is: writes are at once."""

    def __init__(self, *, bytes_max: int = SPOOL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._boot = 0
        self._records: dict[tuple[str, int], bytes] = {}
        self.unreadable: dict[tuple[str, int], bytes] = {}
        self._bytes = 0

    def raise_boot(self) -> int:
        self._boot += 1
        return self._boot

    def keep(self, records: Sequence[Record]) -> list[Record]:
        refused: list[Record] = []
        for record in records:
            scheduler, attempt, payload = record
            grown = self._bytes + len(payload) - len(self._records.get((scheduler, attempt), b""))
            if grown > self._bytes_max:
                refused.append(record)
                continue
            self._records[scheduler, attempt] = payload
            self._bytes = grown
        return refused

    def drop(self, scheduler: str, attempts: Iterable[int]) -> None:
        for attempt in attempts:
            self._bytes -= len(self._records.pop((scheduler, attempt), b""))

    def load(self) -> list[Record]:
        return [(*key, self._records[key]) for key in sorted(self._records)]

    def set_aside(self, scheduler: str, attempt: int) -> str:
        self.unreadable[scheduler, attempt] = self._records[scheduler, attempt]
        self.drop(scheduler, [attempt])
        return "memory"

    def close(self) -> None:
        """Nothing to do: it stays readable for the next boot."""
