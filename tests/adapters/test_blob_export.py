"""Files of a scheduler on their way through an export and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mycel.blobs import digests
from mycel.blobs.blob_export import BlobExport, BlobImport
from mycel.blobs.blob_store import BlobStore
from mycel.blobs.claims import BlobClaims, OutputsRecord
from mycel.blobs.errors import BlobError, WrongContent

CONTENTS = (b"", b"short", bytes(range(256)) * 10_000)
JOB = "01arz3ndektsv4rrffq69g5fav"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of a job, one that nobody wants, and one that lies with a worker."""
    folder = tmp_path / "blobs"
    store = BlobStore(folder, 1 << 30)
    names = [store.put(content) for content in (*CONTENTS, b"unwanted")]
    claims = BlobClaims(folder / "book.db")
    claims.uploaded(names[:1], "ada", 5.0)
    claims.used(JOB, names[1:3], 6.0)
    claims.put_out(OutputsRecord(JOB, 2, 7, names[1], 2, 99), [], 7.0)
    claims.kept(JOB, [("blake3:" + "0" * 64, "worker")], 8.0)
    claims.key_of("worker", b"\0secret")
    claims.close()
    return folder


def lines_of(folder: Path, **options: Any) -> tuple[list[dict[str, Any]], BlobExport]:
    export = BlobExport(folder, **options)
    return list(export.lines()), export


def test_what_is_exported_is_there_again(folder: Path, tmp_path: Path) -> None:
    lines, export = lines_of(folder)
    assert (export.counts.files, export.counts.left, export.counts.with_workers) == (3, 0, 1)
    assert export.counts.bytes == sum(map(len, CONTENTS))
    copy = tmp_path / "copy" / "blobs"
    taking = BlobImport(copy)
    for line in lines:
        taking.take(line)
    assert not copy.exists()
    taking.finish()
    taking.abandon()
    assert taking.counts.files == 3
    assert lines_of(copy)[0] == lines
    store, claims = BlobStore(copy, 1 << 30), BlobClaims(copy / "book.db")
    for content in CONTENTS:
        with store.reading(digests.of_bytes(content)) as file:
            assert file.read() == content
    assert claims.keys() == {"worker": b"\0secret"}
    record = claims.outputs(JOB, 2, 7)
    assert record is not None
    assert record.files == 2
    claims.close()


def test_without_files_it_says_what_it_leaves(folder: Path, tmp_path: Path) -> None:
    lines, export = lines_of(folder, with_files=False)
    assert (export.counts.files, export.counts.left) == (0, 3)
    assert export.counts.left_bytes == sum(map(len, CONTENTS))
    assert {one.get("table") for one in lines} == {
        "uploads",
        "uses",
        "kept",
        "outputs",
        "jobs",
        "keys",
    }


def test_a_file_that_is_gone_is_left_out(folder: Path) -> None:
    for path in folder.glob("objects/*/*"):
        if path.read_bytes() == b"short":
            path.unlink()
    _, export = lines_of(folder)
    assert (export.counts.files, export.counts.left) == (2, 1)


def test_a_scheduler_without_files_has_nothing_to_export(tmp_path: Path) -> None:
    assert lines_of(tmp_path / "none")[0] == []
    taking = BlobImport(tmp_path / "none")
    taking.finish()
    taking.abandon()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        {"digest": "blake3:" + "1" * 64, "offset": 0, "base64": "AAAA"},
        {"digest": "../../etc/passwd", "offset": 0, "base64": ""},
        {"table": "sqlite_schema", "row": {"name": "x"}},
        {"table": "uses", "row": {"job; DROP TABLE uses": "x"}},
        {"table": 7},
        {"digest": "blake3:" + "1" * 64, "offset": -1, "base64": "AAAA"},
    ],
)
def test_nothing_is_left_of_what_is_damaged(tmp_path: Path, line: dict[str, Any]) -> None:
    taking = BlobImport(tmp_path / "blobs")
    with pytest.raises((BlobError, ValueError)):  # noqa: PT012 – some are seen at the end
        taking.take(line)
        taking.finish()
    taking.abandon()
    assert list(tmp_path.iterdir()) == []


def test_other_bytes_than_the_digest_says_are_refused(folder: Path, tmp_path: Path) -> None:
    lines, _ = lines_of(folder)
    taking = BlobImport(tmp_path / "copy")
    for line in lines:
        taking.take({**line, "base64": "AAAA"} if line.get("base64") else line)
    with pytest.raises(WrongContent):
        taking.finish()
    taking.abandon()
    assert not (tmp_path / "copy").exists()
