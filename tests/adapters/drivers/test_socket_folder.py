"""Socket folders: a starting worker removes those of dead workers, and no others."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from mycel.drivers.socket_folder import PREFIX, SocketFolder


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_the_next_one_removes_what_a_killed_worker_left_and_nothing_else(tmp_path: Path) -> None:
    alive, killed = SocketFolder(), SocketFolder()
    (killed.path / "lane-1").touch()
    other = tmp_path / "mycel-other"
    other.mkdir()
    elsewhere = tmp_path / f"{PREFIX}link"
    elsewhere.symlink_to(other)
    killed.abandon()
    later = SocketFolder()
    assert not killed.path.exists()
    assert all(path.is_dir() for path in (alive.path, later.path, other, elsewhere))


def test_it_is_gone_when_it_is_removed(tmp_path: Path) -> None:
    folder = SocketFolder()
    (folder.path / "lane-1").touch()
    folder.remove()
    assert list(tmp_path.iterdir()) == []
