"""`mycel cluster` and `mycel bench federation`, as people call them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mycel.cli.main import main

from .test_backends import CLUSTER
from .test_extraction import COMPSPEC, NEW
from .test_specs import FLUX

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "clusters.md"
SPEC = "nodes: {}\ntask: {{requirements: {{cpu_cores: {}}}}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "graph.json").write_bytes(CLUSTER)
    (tmp_path / "two.yaml").write_text(SPEC.format(2, 1), encoding="utf-8")
    (tmp_path / "large.yaml").write_text(SPEC.format(1, 3), encoding="utf-8")
    return tmp_path


def satisfy(folder: Path, spec: str, *more: str) -> int:
    return main(["cluster", "satisfy", str(folder / "graph.json"), str(folder / spec), *more])


def test_satisfy_says_yes_no_and_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert satisfy(folder, "two.yaml") == 0
    assert capsys.readouterr().out == "satisfiable\n"
    assert satisfy(folder, "large.yaml", "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["satisfiable"], said["level"]) == (False, "graph")
    assert "3 core" in said["reason"]
    assert satisfy(folder, "two.yaml", "--backend", "networkx", "--original") == 0
    assert "cpu_cores: 1" in capsys.readouterr().out


def test_the_first_example_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for name, content in re.findall(r"```(?:text|toml)\n# ([\w.]+)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(content, encoding="utf-8")
    (first,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ mycel (.*)$", first, re.MULTILINE)
    assert [main(command.split()) for command in commands] == [0, 1]
    assert capsys.readouterr().out.strip() == first.splitlines()[-1]


@pytest.mark.parametrize("broken", ["graph.json", "two.yaml"])
def test_input_that_cannot_be_read_is_no_verdict(
    folder: Path, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / broken).write_text("{", encoding="utf-8")
    assert satisfy(folder, "two.yaml") == 2
    assert capsys.readouterr().err.startswith("mycel: ")
    (folder / broken).unlink()
    assert satisfy(folder, "two.yaml") == 1
    assert broken in capsys.readouterr().err


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        ('{"do": "allocate", "jobspec": "two.yaml", "at": "x"}', "steps[0].at"),
        ('{"do": "allocate", "jobspec": "two.yaml", "at": -1}', "steps[0].at"),
        ('{"do": "allocate", "jobspec": "two.yaml", "at": 99999999999999999999}', "steps[0].at"),
        ('{"do": "allocate", "jobspec": "two\\u0000"}', "step 1"),
        ('{"do": "allocate"}', "step 1"),
        ('{"do": "fly"}', "steps[0].do"),
        ('{"do": "cancel", "job": 7}', "'7'"),
        ('{"do": "set-status", "path": "/c/n9", "status": "down"}', "/c/n9"),
        ('{"do": "set-status", "path": "/c/n1", "status": "gone"}', "steps[0].status"),
        ('{"do": "allocate", "jobspec": "two.yaml"}\n{', "line 2"),
        ("[1]", "steps[0]"),
        ("[" * 50_000, "line 1"),
    ],
)
def test_steps_that_are_none_are_refused_with_their_place(
    folder: Path, capsys: pytest.CaptureFixture[str], steps: str, place: str
) -> None:
    path = folder / "steps.jsonl"
    path.write_text(steps, encoding="utf-8")
    assert main(["cluster", "sequence", str(folder / "graph.json"), str(path)]) == 2
    assert place in capsys.readouterr().err


def test_each_no_of_a_sequence_has_its_level_and_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "steps.jsonl"
    steps = [
        {"do": "allocate", "jobspec": "two.yaml"},
        {"do": "allocate", "jobspec": "two.yaml"},
        {"do": "allocate", "jobspec": "two.yaml"},
        {"do": "satisfiability", "jobspec": "large.yaml"},
    ]
    path.write_text(json.dumps(steps), encoding="utf-8")
    assert main(["cluster", "sequence", str(folder / "graph.json"), str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["verdict"] for one in said] == [
        "allocated", "allocated", "no-match", "unsatisfiable",
    ]  # fmt: skip
    assert [one.get("level") for one in said] == [None, None, "time", "graph"]


def test_a_sequence_of_jobs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "flux.yaml").write_text(FLUX, encoding="utf-8")
    steps: list[dict[str, Any]] = [
        {"do": "allocate", "jobspec": "two.yaml", "expect": "allocated"},
        {"do": "allocate_with_satisfiability", "jobspec": "large.yaml", "expect": "unsatisfiable"},
        {"do": "satisfiability", "jobspec": "two.yaml", "expect": "satisfiable"},
        {"do": "allocate", "jobspec": "two.yaml", "expect": "allocated"},
        {"do": "allocate_orelse_reserve", "jobspec": "two.yaml", "expect": "no-match"},
        {"do": "cancel", "job": 1},
        {"do": "allocate", "jobspec": "two.yaml", "expect": "allocated"},
    ]
    path = folder / "steps.jsonl"
    path.write_text("\n".join(json.dumps(step) for step in steps), encoding="utf-8")
    command = ["cluster", "sequence", str(folder / "graph.json"), str(path)]
    assert main(command) == 0
    capsys.readouterr()
    path.write_text(json.dumps({"steps": [{**steps[0], "expect": "no-match"}]}), encoding="utf-8")
    assert main([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "allocated"
    path.write_text('{"do": "dance", "jobspec": "two.yaml"}', encoding="utf-8")
    assert main(command) == 2


def test_what_is_extracted_can_be_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded, out = folder / "nodes.json", folder / "slurm.json"
    recorded.write_text(json.dumps(NEW), encoding="utf-8")
    command = ["cluster", "extract", "slurm", "--from", str(recorded), "--out", str(out)]
    assert main(command) == 0
    compspec, facts = folder / "compspec.json", folder / "facts.json"
    compspec.write_text(json.dumps(COMPSPEC), encoding="utf-8")
    command = ["cluster", "extract", "facts", "--graph", str(out), "--out", str(facts)]
    assert main([*command, "--compspec", f"n0={compspec}"]) == 0
    spec = folder / "mpi.yaml"
    spec.write_text('nodes: 1\ncompatibility: {mpi.version: ">=4,<5"}\n', encoding="utf-8")
    command = ["cluster", "satisfy", str(out), str(spec)]
    assert main(command) == 1
    assert "subsystem" in capsys.readouterr().out
    assert main([*command, "--subsystem", f"compatibility={facts}"]) == 0


def test_the_bench_agrees_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--clusters", "12", "--nodes", "80", "--specs", "60", "--unpruned", "6"]
    assert main(["bench", "federation", "--json", *sizes]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["fits"] == {"everywhere": 20, "somewhere": 20, "nowhere": 20}
    assert report["ratio"] > 1
    assert report["agree"] is True
