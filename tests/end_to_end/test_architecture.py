"""The walks of docs/architecture.md are true: its links lead somewhere, its names are defined
where it says, and a lone task really passes them."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from .swarm import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "architecture.md"
LINK = re.compile(r"\[(`?)([^\]]+?)\1\]\(([^)\s]+)\)")
TASK = "One task, hop by hop"
WALKS = (TASK, "A worker joins", "A chat request", "`mycel up`")
TRACES = 3
"""A timer or another process may fall into each task of one trace. Not of all traces."""
OPEN = ("src/mycel/core/", "src/mycel/client/", "src/mycel/runtime/clock.py")
"""The walk does not name every step in here."""
COMMITS = frozenset({"SqliteStore.commit", "SqliteStore.commit_at_once"})
"""How quick the disk is decides which of them is called."""


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def hops(walk: str) -> list[tuple[str, str]]:
    """Name and file, as the list of steps has them, in order."""
    steps = sections()[walk].partition("\n### ")[0]
    return [
        (name, target.removeprefix("../"))
        for tick, name, target in LINK.findall(steps)
        if tick and target.endswith(".py")
    ]


@cache
def defined_in(file: str) -> frozenset[str]:
    tree = ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, functions)}
    return frozenset(found)


def anchors(document: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_leads_somewhere() -> None:
    for _, text, target in LINK.findall(DOCUMENT.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        document = (DOCUMENT.parent / path).resolve() if path else DOCUMENT
        assert document.exists(), f"[{text}] leads to {target}, which is not there"
        if anchor:
            assert anchor in anchors(document), f"[{text}] leads to {target}: no such section"


@pytest.mark.parametrize("walk", WALKS)
def test_every_step_is_defined_where_the_walk_says(walk: str) -> None:
    assert len(hops(walk)) >= 10
    for name, file in hops(walk):
        assert name in defined_in(file), f"{walk}: {file} does not define {name}"


def disagreements() -> list[str]:
    """Between the walk of a lone task and one trace of it."""
    command = [sys.executable, str(REPOSITORY / "scripts" / "trace-task"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        return [f"scripts/trace-task: {done.stderr[-2000:]}"]
    traced = json.loads(done.stdout)["hops"]
    called = {(hop["function"], hop["file"]) for hop in traced}
    on_the_way = {hop["file"] for hop in traced if hop["on_the_way"]}
    walked = hops(TASK)
    return [
        *(
            f"{name} of {file} is not called"
            for name, file in walked
            if (name, file) not in called and name not in COMMITS
        ),
        *([] if COMMITS.intersection(name for name, _ in called) else ["nothing is committed"]),
        *(
            f"{file} is on the way, and the walk does not name it"
            for file in sorted(on_the_way - {file for _, file in walked})
            if not file.startswith(OPEN)
        ),
    ]


def test_a_lone_task_goes_the_way_that_the_walk_describes() -> None:
    found: list[str] = []
    for _ in range(TRACES):
        found = disagreements()
        if not found:
            return
    raise AssertionError("\n".join(found))
