"""A journal as lines of JSON, and back.

    {"mycel_journal": 1, "schema": 4, "swarm": "home"}
    {"table": "jobs", "row": {"number": 1, "id": "01…", "specification": {"base64": "…"}, …}}
    {"file": [1, 0, 99], "offset": 0, "base64": "…"}
    {"beside": {…}}
    {"end": 3, "digest": "blake3:…"}

A line of what stands beside the journal, such as files, is for whoever reads that. The last line
counts the lines before it and has the digest of their bytes: what was cut off or changed is not
taken. Rows name their columns, so that an export of an older version is taken too, with the
defaults of what it lacks.
"""

from __future__ import annotations

import base64
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import msgspec
from blake3 import blake3

from mycel.store.sqlite.database import open_database, open_for_inspection
from mycel.store.sqlite.schema import JOURNAL_FORMAT

from .errors import DiskRefused, ExportUnusable, StoreForeign, StoreTooNew, translated
from .long_values import ValueFiles

EXPORT_VERSION: Final = 2
PIECE_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 256 << 20

_encode: Final = msgspec.json.Encoder().encode


class Counts(msgspec.Struct, frozen=True):
    swarm: str
    rows: int
    files: int


class _Line(msgspec.Struct):
    mycel_journal: int | None = None
    schema: int = 0
    swarm: str = ""
    table: str | None = None
    row: dict[str, Any] = {}
    file: tuple[int, int, int] | None = None
    offset: int = 0
    base64: str = ""
    beside: dict[str, Any] | None = None
    end: int | None = None
    digest: str = ""


_decode: Final = msgspec.json.Decoder(_Line).decode


class Beside(Protocol):
    """Takes in what an export has beside the journal."""

    def take(self, given: dict[str, Any]) -> None: ...
    def finish(self) -> None:
        """It is whole, and the journal is about to be there."""
        ...

    def abandon(self) -> None: ...


def export(path: Path, out: BinaryIO, beside: Iterable[dict[str, Any]] = ()) -> Counts:
    """One moment of the journal, also while its scheduler runs; then what stands beside it."""
    connection = open_for_inspection(path, JOURNAL_FORMAT)
    try:
        connection.execute("BEGIN")
        return _export(connection, ValueFiles(path), out, beside)
    except sqlite3.Error as error:
        raise translated(error, path) from error
    finally:
        connection.close()


def _export(
    connection: sqlite3.Connection,
    files: ValueFiles,
    out: BinaryIO,
    beside: Iterable[dict[str, Any]],
) -> Counts:
    hasher = blake3()
    lines = rows = in_files = 0

    def write(line: object) -> None:
        nonlocal lines
        encoded = _encode(line) + b"\n"
        hasher.update(encoded)
        out.write(encoded)
        lines += 1

    (swarm,) = connection.execute("SELECT swarm FROM meta").fetchone()
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    write({"mycel_journal": EXPORT_VERSION, "schema": schema, "swarm": swarm})
    for table in _tables(connection):
        cursor = connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - from the schema
        names = [column[0] for column in cursor.description]
        for row in cursor:
            fields = {name: _outside(value) for name, value in zip(names, row, strict=True)}
            write({"table": table, "row": fields})
            rows += 1
    for place in connection.execute(
        "SELECT job, task_index, attempt FROM results WHERE value_size > 0"
    ).fetchall():
        for offset, piece in _pieces(files.path(*place)):
            text = base64.b64encode(piece).decode()
            write({"file": place, "offset": offset, "base64": text})
        in_files += 1
    for given in beside:
        write({"beside": given})
    out.write(_encode({"end": lines, "digest": f"blake3:{hasher.hexdigest()}"}) + b"\n")
    return Counts(swarm, rows, in_files)


def _tables(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in connection.execute(f"{query} ORDER BY name")]


def _pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    offset = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield offset, piece
                offset += len(piece)
    except OSError as error:
        raise DiskRefused(f"{path} cannot be read ({error.strerror}): check the journal") from error


def _outside(value: object) -> object:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _inside(value: object) -> object:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def import_journal(
    path: Path, source: BinaryIO, *, swarm: str, beside: Beside | None = None
) -> Counts:
    """Makes a journal where there is none; nothing is left behind if that fails. The caller
    holds the lock of the folder. Without `beside`, what stands there is left out."""
    if path.exists():
        raise StoreForeign(f"{path} exists already: move it away first")
    making = path.with_name(f"{path.name}.importing")
    _remove(making)
    try:
        counts = _import(making, source, swarm, beside)
        making_values, values = ValueFiles(making).folder, ValueFiles(path).folder
        shutil.rmtree(values, ignore_errors=True)
        if making_values.is_dir():
            making_values.rename(values)
        if beside is not None:
            beside.finish()
        making.rename(path)
    except OSError as error:
        raise DiskRefused(f"{path} cannot be written: {error.strerror}") from error
    finally:
        _remove(making)
        if beside is not None:
            beside.abandon()
    return counts


def _remove(making: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        making.with_name(making.name + suffix).unlink(missing_ok=True)
    shutil.rmtree(ValueFiles(making).folder, ignore_errors=True)


def _import(making: Path, source: BinaryIO, swarm: str, beside: Beside | None) -> Counts:
    lines = _checked_lines(source)
    head = next(lines, _Line())
    _check_head(head, swarm)
    connection = open_database(making, JOURNAL_FORMAT)
    try:
        connection.execute("BEGIN IMMEDIATE")
        known = set(_tables(connection))
        connection.execute("DELETE FROM meta")
        rows, places = _insert(connection, ValueFiles(making), known, lines, beside)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
        raise ExportUnusable(f"a line of the export does not fit a journal: {error}") from error
    finally:
        connection.close()
    return Counts(head.swarm, rows, places)


def _check_head(head: _Line, swarm: str) -> None:
    if head.mycel_journal is None:
        raise ExportUnusable("this is no export of a journal: its first line does not say so")
    if head.mycel_journal > EXPORT_VERSION or head.schema > JOURNAL_FORMAT.version:
        raise StoreTooNew(
            f"the export has version {head.mycel_journal} and schema {head.schema}, and this "
            f"Mycel knows up to {EXPORT_VERSION} and {JOURNAL_FORMAT.version}: use the newer one"
        )
    if swarm and head.swarm and swarm != head.swarm:
        raise StoreForeign(f"the export is of swarm {head.swarm!r}, not of {swarm!r}")


def _insert(
    connection: sqlite3.Connection,
    files: ValueFiles,
    known: set[str],
    lines: Iterable[_Line],
    beside: Beside | None,
) -> tuple[int, int]:
    rows = 0
    places = set()
    for line in lines:
        if line.beside is not None:
            if beside is not None:
                beside.take(line.beside)
            continue
        if line.file is not None:
            places.add(line.file)
            files.write(*line.file, line.offset, base64.b64decode(line.base64, validate=True))
            continue
        if line.table not in known or not all(name.isidentifier() for name in line.row):
            raise ExportUnusable(f"a journal has no table {line.table!r} with these columns")
        names = ", ".join(f'"{name}"' for name in line.row)
        holes = ", ".join("?" for _ in line.row)
        statement = f'INSERT INTO "{line.table}" ({names}) VALUES ({holes})'  # noqa: S608
        connection.execute(statement, [_inside(value) for value in line.row.values()])
        rows += 1
    return rows, len(places)


def _checked_lines(source: BinaryIO) -> Iterator[_Line]:
    """All lines but the last, which must fit them."""
    hasher = blake3()
    count = 0
    while raw := source.readline(LINE_BYTES_MAX):
        try:
            line = _decode(raw)
        except msgspec.MsgspecError as error:
            raise ExportUnusable(f"line {count + 1} of the export is damaged: {error}") from error
        if line.end is not None:
            if line.end != count or line.digest != f"blake3:{hasher.hexdigest()}":
                raise ExportUnusable("the export was changed: its last line does not fit the rest")
            return
        hasher.update(raw)
        count += 1
        yield line
    raise ExportUnusable(f"the export is cut off after {count} lines")
