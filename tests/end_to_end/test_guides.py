"""The examples of the guides run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from .swarm import Swarm

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "job-files.md"
BLOCK = re.compile(r"^```(toml|yaml|json|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
JOBS = [(kind, text) for kind, text in BLOCKS if kind != "python"]
PROGRAMS = [text for kind, text in BLOCKS if kind == "python"]
RESULTS: dict[str, dict[int, Any]] = {
    "one.toml": {0: "hello\n"},
    "arguments.json": {0: 2, 1: 7},
    "sweep.toml": {0: "rate 0.1, seed 1\n", 5: "rate 0.01, seed 3\n"},
    "powers.yaml": {0: 2, 1: 4, 2: 9, 3: 1_000_000},
    "words.toml": {0: "word: first\n", 1: "word: second word\n"},
    "notes.yaml": {0: 3, 1: 6},
    "pipeline.toml": {3: "part 1\n", 5: 2},
}


def name_of(text: str) -> str:
    found = re.search(r"[\w-]+\.(toml|yaml|json)", text)
    assert found is not None, "an example begins with its name"
    return found[0]


def test_the_guide_has_examples_of_every_format() -> None:
    assert {kind for kind, _ in BLOCKS} == {"toml", "yaml", "json", "python"}


@pytest.mark.parametrize("text", [text for _, text in JOBS], ids=name_of)
def test_a_job_file_runs(swarm: Swarm, tmp_path: Path, text: str) -> None:
    name = name_of(text)
    (tmp_path / name).write_text(text)
    (tmp_path / "words.txt").write_text("first\n\nsecond word\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("abc")
    (tmp_path / "notes" / "b.txt").write_text("abcdef")
    previewed = swarm.mycel("submit", str(tmp_path / name), "--dry-run", "--json").json
    done = swarm.mycel("submit", str(tmp_path / name), "--wait", "--json").json
    assert done["state"] == "succeeded", done
    assert done["tasks"]["total"] == previewed["tasks"]
    for index, value in RESULTS.get(name, {}).items():
        assert swarm.client.task(f"{done['id']}.{index}").value == value


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs(swarm: Swarm, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYCEL_HOME", str(swarm.home))
        exec(program, {})  # it is the guide's own
    first, second = capsys.readouterr().out.splitlines()
    assert sorted(first.strip("[]").split(", ")) == ["1", "4", "9"]
    assert second == "succeeded [('a', 'succeeded'), ('b', 'succeeded')]"
