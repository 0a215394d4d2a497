"""Level 2 of choosing, and `mycel cluster` for clusters that are known by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mycel.cli.main import main
from mycel.core.federation.asking import Asking, Heard
from mycel.core.federation.decision import Answer

from .test_backends import CLUSTER, SOFTWARE
from .test_graphs import graph, node


def test_the_first_answer_in_time_counts() -> None:
    asking = Asking(("a", "b"), now=100.0, deadline_seconds=5.0)
    first, other = Answer("a", True, eta_seconds=9.0), Answer("a", True, eta_seconds=1.0)
    assert asking.answer(first, 101.0) is Heard.COUNTED
    assert asking.answer(other, 102.0) is Heard.TWICE
    assert asking.answer(Answer("c", True), 102.0) is Heard.NOT_ASKED
    assert not asking.is_closed(105.0)
    assert asking.is_closed(105.1)
    assert asking.answer(Answer("b", True), 105.1) is Heard.LATE
    assert asking.answers == {"a": first}


def test_asking_ends_when_everybody_has_answered() -> None:
    asking = Asking(("a", "b"), now=0.0, deadline_seconds=5.0)
    asking.answer(Answer("a", False), 0.5)
    assert not asking.is_closed(1.0)
    asking.answer(Answer("b", True), 1.0)
    assert asking.is_closed(1.0)
    assert Asking((), now=0.0, deadline_seconds=5.0).is_closed(0.0)


class Shell:
    """`mycel cluster` with a home of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def run(self, *words: str, code: int = 0) -> str:
        assert main(["cluster", *words, "--home", str(self.folder / "home")]) == code
        return self._capsys.readouterr().out

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code))

    def write(self, name: str, text: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(0o600)
        return str(path)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


LARGE = graph(
    node("0", "cluster"),
    node("1"),
    *(node(f"c{n}", "core") for n in range(8)),
    edges=[("0", "1"), *(("1", f"c{n}") for n in range(8))],
)


@pytest.fixture
def two(shell: Shell) -> dict[str, Any]:
    """Two clusters: `small` is cheap, `large` has a node of eight cores."""
    small, large = shell.write("small.json", CLUSTER), shell.write("large.json", LARGE)
    made = {
        "small": shell.json("register", "small", small, "--state", "cost_per_node_hour=1"),
        "large": shell.json(
            "register", "large", large, "--state", "cost_per_node_hour=7", "--state", "region=eu"
        ),
    }
    shell.write("one.yaml", "nodes: 1\ntask: {requirements: {cpu_cores: 1}}")
    shell.write("wide.yaml", "nodes: 1\ntask: {requirements: {cpu_cores: 4}}")
    shell.write("huge.yaml", "nodes: 1\ntask: {requirements: {cpu_cores: 9}}")
    return made


def test_a_job_goes_to_the_cheapest_that_fits(shell: Shell, two: dict[str, Any]) -> None:
    one, wide = str(shell.folder / "one.yaml"), str(shell.folder / "wide.yaml")
    cheapest = ("--select", "lowest-cost")
    assert shell.json("choose", one, *cheapest)["cluster"] == "small"
    said = shell.json("choose", wide, *cheapest)
    assert (said["cluster"], said["refused"]["small"]["level"]) == ("large", "graph")
    said = shell.json("choose", one, *cheapest)
    assert said["refused"]["large"]["level"] == "selection", "it would have fitted"
    rejected = shell.json("choose", str(shell.folder / "huge.yaml"), *cheapest, code=1)
    assert rejected["cluster"] is None
    assert {name: why["level"] for name, why in rejected["refused"].items()} == {
        "small": "summary",
        "large": "summary",
    }
    assert "rejected" in shell.run("choose", str(shell.folder / "huge.yaml"), code=1)
    seeded = {shell.json("choose", one, "--seed", str(seed))["cluster"] for seed in range(20)}
    assert seeded == {"small", "large"}


def test_steps_of_a_selection_see_the_state_and_the_job(shell: Shell, two: dict[str, Any]) -> None:
    one = str(shell.folder / "one.yaml")
    steps = shell.write(
        "steps.yaml",
        '- priority: 1\n  steps:\n    - filter: region == "eu" and job.nodes < 2\n'
        "    - sort: cost\n    - select: first\n",
    )
    select = ("--select", "constraint", "--options", steps)
    assert shell.json("choose", one, *select)["cluster"] == "large"
    shell.run("state", "large", "region=")
    assert shell.json("state", "large") == {"cost_per_node_hour": 7}
    refused = shell.json("choose", one, *select, code=1)["refused"]
    assert refused["large"]["level"] == "selection"


def test_only_clusters_with_a_good_token_are_chosen(shell: Shell, two: dict[str, Any]) -> None:
    one = str(shell.folder / "one.yaml")
    auth = shell.write(
        "auth.toml",
        f'[clusters.small]\ntoken = "wrong"\n'
        f'[clusters.large]\ntoken = "{two["large"]["token"]}"\n[clusters.gone]\ntoken = "x"\n',
    )
    said = shell.json("choose", one, "--auth", auth, "--select", "lowest-cost")
    assert said["cluster"] == "large"
    assert {name: why["level"] for name, why in said["refused"].items()} == {
        "small": "token",
        "gone": "token",
    }
    new = shell.json("rotate", "large")["token"]
    assert new != two["large"]["token"]
    assert shell.json("choose", one, "--auth", auth, code=1)["refused"]["large"]["level"] == "token"


def test_answers_of_clusters_decide_the_second_level(shell: Shell, two: dict[str, Any]) -> None:
    one = str(shell.folder / "one.yaml")
    yes = {"accepts": True, "cost": 1.0}
    answers = [
        {"cluster": "small", **yes, "eta_seconds": 600, "eta_from": "queue", "after_seconds": 1},
        {"cluster": "large", **yes, "eta_seconds": 5, "eta_from": "test-only", "after_seconds": 2},
    ]
    path = shell.write("answers.json", json.dumps(answers))
    select = ("--select", "earliest-eta", "--answers", path)
    assert shell.json("choose", one, *select)["cluster"] == "large"
    assert shell.json("choose", one, *select, "--deadline", "1.5")["cluster"] == "small"
    assert shell.json("choose", one, *select, "--deadline", "0.5", code=1)["refused"] == {
        name: {"level": "answer", "reason": "did not answer in time"} for name in ("small", "large")
    }
    for wrong in ("{", '[{"cluster": "small"}]', '[{"cluster": "a", "accepts": true, "cost": -1}]'):
        bad = shell.write("bad.json", wrong)
        shell.run("choose", one, "--answers", bad, code=2)


def test_commands_show_what_is_known_and_no_secret(shell: Shell, two: dict[str, Any]) -> None:
    shell.run("subsystem", "add", "small", "software", shell.write("soft.json", SOFTWARE))
    shown = shell.json("show", "small")
    assert list(shown["subsystems"]) == ["software"]
    everything = shell.run("list") + shell.run("show", "small") + json.dumps(shell.json("list"))
    assert "small" in everything
    for made in two.values():
        assert made["token"] not in everything
        assert made["secret"] not in everything
    shell.run("subsystem", "remove", "small", "software")
    shell.run("subsystem", "add", "small", "software", code=2)
    shell.run("rotate", "small", "--revoke")
    shell.run("delete", "small")
    assert [one["name"] for one in shell.json("list")] == ["large"]
    shell.run("show", "small", code=2)
    shell.run("register", "50%", str(shell.folder / "small.json"), code=2)


def test_the_configuration_says_what_flags_leave_open(shell: Shell, two: dict[str, Any]) -> None:
    one = str(shell.folder / "one.yaml")
    graph_file = str(shell.folder / "small.json")
    shell.write("home/mycel.toml", '[clusters]\nselection = "lowest-cost"\n')
    assert {shell.json("choose", one)["cluster"] for _ in range(8)} == {"small"}
    assert shell.run("satisfy", graph_file, one) == "satisfiable\n"
    shell.write("home/mycel.toml", '[clusters]\ngraph_backend = "tape"\nselection = "best"\n')
    shell.run("choose", one, code=2)
    shell.run("satisfy", graph_file, one, code=2)
    assert shell.run("satisfy", graph_file, one, "--backend", "networkx") == "satisfiable\n"
