"""The worker's spool and its twin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mycel.store.errors import JournalBroken, StoreForeign
from mycel.store.spool import MemorySpool, Spool

Open = Callable[[], Spool | MemorySpool]


@pytest.fixture(params=["sqlite", "memory"])
def open_spool(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return lambda: Spool(tmp_path / "spool.db", bytes_max=100)
    memory = MemorySpool(bytes_max=100)
    return lambda: memory


def test_boot_numbers_rise(open_spool: Open) -> None:
    first = open_spool()
    assert first.raise_boot() == 1
    first.close()
    again = open_spool()
    assert again.raise_boot() == 2
    again.close()


def test_kept_records_are_there_after_a_restart(open_spool: Open) -> None:
    spool = open_spool()
    assert spool.keep([("b", 2, b"two"), ("a", 1 << 60, b"one")]) == []
    assert spool.keep([("b", 2, b"replaced"), ("b", 3, b"three")]) == []
    spool.close()
    spool = open_spool()
    assert spool.load() == [("a", 1 << 60, b"one"), ("b", 2, b"replaced"), ("b", 3, b"three")]
    spool.drop("b", [2, 99])
    spool.drop("nobody", [3])
    assert spool.load() == [("a", 1 << 60, b"one"), ("b", 3, b"three")]
    spool.close()


def test_what_does_not_fit_is_handed_back(open_spool: Open) -> None:
    spool = open_spool()
    large = ("a", 1, b"x" * 80)
    larger = ("a", 2, b"x" * 30)
    small = ("a", 3, b"x" * 20)
    assert spool.keep([large, larger, small]) == [larger]
    assert spool.keep([large]) == []
    spool.close()
    spool = open_spool()
    assert spool.keep([larger]) == [larger]
    spool.drop("a", [1])
    assert spool.keep([larger]) == []
    assert spool.load() == [larger, small]
    spool.close()


def test_use_after_close_is_refused(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    spool.close()
    with pytest.raises(JournalBroken):
        spool.load()


def test_garbage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    path.write_bytes(b"no database " * 100)
    with pytest.raises(StoreForeign, match=r"spool\.db"):
        Spool(path)


def test_a_record_that_nobody_can_read_is_set_aside(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    spool.keep([("12D3/../scheduler", 1, b"garbage"), ("b", 2, b"two")])
    place = Path(spool.set_aside("12D3/../scheduler", 1))
    assert place.read_bytes() == b"garbage"
    assert place.parent == tmp_path / "spool.db.unreadable"
    assert spool.load() == [("b", 2, b"two")]
    spool.close()


@pytest.mark.parametrize(
    "record", [("a", 1 << 63, b""), ("\ud800", 1, b""), ("a", -(1 << 64), b"")]
)
def test_a_record_that_no_row_can_hold_is_handed_back(
    tmp_path: Path, record: tuple[str, int, bytes]
) -> None:
    spool = Spool(tmp_path / "spool.db")
    good = ("a", 1, b"one")
    assert spool.keep([record, good]) == [record]
    assert spool.load() == [good]
    spool.close()
