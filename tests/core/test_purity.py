"""The core has no clock, no randomness, no I/O: a test over its imports keeps it so."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mycel.core

ALLOWED = {
    "__future__",
    "array",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "heapq",
    "itertools",
    "math",
    "msgspec",
    "re",
    "tomllib",
    "typing",
}
ROOT = Path(mycel.core.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def imported(path: Path, root: Path) -> set[str]:
    """Modules that a file of the package `mycel.core` in `root` imports, by their full names."""
    folder = ["mycel", "core", *path.relative_to(root).parts[:-1]]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = [node.module] if node.module else []
            if node.level:
                module = [*folder[: len(folder) - node.level + 1], *module]
            name = ".".join(module)
            # `from .. import roles` imports `mycel.roles`, not only `mycel`.
            below = name == "mycel" or not node.module
            names.update(f"{name}.{alias.name}" if below else name for alias in node.names)
    return names


def foreign(path: Path, root: Path = ROOT) -> list[str]:
    return sorted(
        name
        for name in imported(path, root)
        if name not in ALLOWED and name != "mycel.core" and not name.startswith("mycel.core.")
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_imports_only_what_is_pure(path: Path) -> None:
    assert not foreign(path), f"{path.name} imports {foreign(path)}"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import time", ["time"]),
        ("from mycel.store.errors import EntriesRefused", ["mycel.store.errors"]),
        ("from mycel import roles", ["mycel.roles"]),
        ("from ...store.errors import EntriesRefused", ["mycel.store.errors"]),
        ("from ... import roles", ["mycel.roles"]),
        ("def late():\n    from ...runtime import clock", ["mycel.runtime"]),
        ("from ..events import Submit", []),
        ("from .. import events", []),
        ("from . import state", []),
        ("from .state import State", []),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, line: str, found: list[str]) -> None:
    planted = tmp_path / "scheduler" / "planted.py"
    planted.parent.mkdir()
    planted.write_text(f"{line}\n", encoding="utf-8")
    assert foreign(planted, tmp_path) == found


def test_the_core_is_all_there() -> None:
    assert len(FILES) > 20
