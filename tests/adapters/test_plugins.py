"""Entry points of other packages: all of them are found, and looking for none costs little."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from mycel.plugins import installed

ENTRY_POINTS = "[mycel.nonsense]\none = package:one\ntwo = package:two\n"


@pytest.mark.parametrize("kind", ["dist-info", "egg-info"])
def test_plugins_are_found_in_a_folder(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / f"package-1.0.{kind}"
    about.mkdir()
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    assert set(installed("mycel.nonsense")) == {"one", "two"}


def test_plugins_are_found_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "packages.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package-1.0.dist-info/METADATA", "Name: package\nVersion: 1.0\n")
        archive.writestr("package-1.0.dist-info/entry_points.txt", ENTRY_POINTS)
    monkeypatch.syspath_prepend(path)
    assert set(installed("mycel.nonsense")) == {"one", "two"}


def test_what_is_installed_here_is_found() -> None:
    group = "console_scripts"
    assert installed(group).keys() == {one.name for one in entry_points(group=group)}
    assert installed(group)


def test_looking_for_what_nobody_brings_imports_nothing() -> None:
    code = "import sys; from mycel.plugins import installed; print(installed('mycel.nonsense'), "
    code += "'importlib.metadata' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "{} False"
