"""A scheduler's blobs as lines beside its journal's, and back: whose they are, and what is in them.

{"table": "uses", "row": {"job": "01…", "digest": "blake3:…"}}
{"digest": "blake3:…", "offset": 0, "base64": "…"}
"""

from __future__ import annotations

import base64
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from . import digests
from .claims import BlobClaims
from .digests import Digest
from .errors import BadDigest, WrongContent

BOOK: Final = "book.db"
PIECE_BYTES: Final = 1 << 20
_TABLES: Final = ("uploads", "uses", "kept", "outputs", "jobs", "keys")


class _Line(msgspec.Struct):
    table: str = ""
    row: dict[str, Any] = {}
    digest: str = ""
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    base64: str = ""


class BlobCounts(msgspec.Struct):
    files: int = 0
    bytes: int = 0
    left: int = 0
    """Not taken along, as was wanted, or gone meanwhile."""
    left_bytes: int = 0
    with_workers: int = 0
    """Where tasks were to leave them; only their names are here."""


class BlobExport:
    """Of the folder of a scheduler's blobs, which may have none; the scheduler may run."""

    def __init__(self, folder: Path, *, with_files: bool = True) -> None:
        self._folder = folder
        self._with_files = with_files
        self.counts = BlobCounts()

    def lines(self) -> Iterator[dict[str, Any]]:
        book = self._folder / BOOK
        if not book.exists():
            return
        connection = sqlite3.connect(f"{book.absolute().as_uri()}?mode=ro", uri=True)
        try:
            connection.execute("BEGIN")
            for table in _TABLES:
                rows = connection.execute(f"SELECT * FROM {table}")  # noqa: S608 – a constant
                names = [column[0] for column in rows.description]
                for row in rows:
                    yield {"table": table, "row": dict(zip(names, map(_outside, row), strict=True))}
            wanted = connection.execute("SELECT digest FROM uploads UNION SELECT digest FROM uses")
            yield from self._contents([Digest(name) for (name,) in wanted])
            elsewhere = "SELECT count(*) FROM kept WHERE digest NOT IN (SELECT digest FROM uses)"
            (self.counts.with_workers,) = connection.execute(elsewhere).fetchone()
        finally:
            connection.close()

    def _contents(self, wanted: list[Digest]) -> Iterator[dict[str, Any]]:
        counts = self.counts
        for digest in wanted:
            path = _place(self._folder, digest)
            try:
                size = path.stat().st_size
                if self._with_files:
                    yield from _pieces(digest, path)
            except FileNotFoundError:
                counts.left += 1
                continue
            if self._with_files:
                counts.files, counts.bytes = counts.files + 1, counts.bytes + size
            else:
                counts.left, counts.left_bytes = counts.left + 1, counts.left_bytes + size


class BlobImport:
    """Into a folder that is not there; nothing is left of it unless it comes to its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._making = folder.with_name(f"{folder.name}.importing")
        self._writing: set[Digest] = set()
        self._book: sqlite3.Connection | None = None
        self.counts = BlobCounts()
        shutil.rmtree(self._making, ignore_errors=True)

    def take(self, given: dict[str, Any]) -> None:
        """Raises `ValueError` for what an export never says."""
        line = msgspec.convert(given, _Line)
        if line.digest:
            self._write(digests.parse(line.digest), line.offset, base64.b64decode(line.base64))
        else:
            self._note(line.table, line.row)

    def _note(self, table: str, row: dict[str, Any]) -> None:
        if table not in _TABLES or not all(name.isidentifier() for name in row):
            raise BadDigest(f"there is no table {table!r} of blobs with these columns")
        if self._book is None:
            self._making.mkdir(parents=True)
            BlobClaims(self._making / BOOK).close()
            self._book = sqlite3.connect(self._making / BOOK)
        holes = ", ".join("?" for _ in row)
        statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({holes})"  # noqa: S608
        self._book.execute(statement, [_inside(value) for value in row.values()])

    def _write(self, digest: Digest, offset: int, data: bytes) -> None:
        path = _place(self._making, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(offset)
            file.write(data)
        self._writing.add(digest)

    def finish(self) -> None:
        """What is in each is what its digest says, or it is refused."""
        for digest in self._writing:
            path = _place(self._making, digest)
            size = path.stat().st_size
            found = digests.of_file(path) if size else digests.of_bytes(b"")
            if found != digest:
                raise WrongContent(f"the blob {digest} of the export is damaged")
            self.counts.files, self.counts.bytes = self.counts.files + 1, self.counts.bytes + size
        if self._book is not None:
            self._book.commit()
            self._book.close()
            self._book = None
        if self._making.is_dir():
            self._making.rename(self._folder)

    def abandon(self) -> None:
        if self._book is not None:
            self._book.close()
        shutil.rmtree(self._making, ignore_errors=True)


def _place(folder: Path, digest: Digest) -> Path:
    name = digests.hexadecimal(digest)
    return folder / "objects" / name[:2] / name[2:]


def _pieces(digest: Digest, path: Path) -> Iterator[dict[str, Any]]:
    offset = 0
    with path.open("rb") as file:
        while True:
            piece = file.read(PIECE_BYTES)
            if not piece and offset:
                return
            text = base64.b64encode(piece).decode()
            yield {"digest": digest, "offset": offset, "base64": text}
            if not piece:
                return
            offset += len(piece)


def _outside(value: object) -> object:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _inside(value: object) -> object:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value
