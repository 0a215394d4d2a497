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
    "typing",
}
ROOT = Path(mycel.core.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_imports_only_what_is_pure(path: Path) -> None:
    foreign = {
        name
        for name in imported(path)
        if name not in ALLOWED and name != "mycel.core" and not name.startswith("mycel.core.")
    }
    assert not foreign, f"{path.name} imports {sorted(foreign)}"


def test_the_core_is_all_there() -> None:
    assert len(FILES) > 20
