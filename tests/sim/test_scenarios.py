"""Scenarios are read whole, refused with file and line, and give what they promise."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest

from mycel.cli.commands import sim_sweep
from mycel.cli.main import main
from mycel.config.errors import ConfigurationError
from mycel.sim.errors import ScenarioError, SimulationError, TraceError
from mycel.sim.results import outcome_transfer
from mycel.sim.results.run_results import Outcome, summary
from mycel.sim.scenario import SCENARIOS, TraceSpec, load_scenario
from mycel.topology.errors import TopologyError

SMALL = """
[cluster]
servers = 10
cores = 2
schedulers = 3

[policy]
name = "sparrow"
probes = 3

[workload]
jobs = 50
tasks_per_job = 3
task_s = 0.1
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "scenario.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_each_shipped_scenario_is_sound(path: Path) -> None:
    loaded = load_scenario(path)
    assert loaded.scenario.title
    loaded.options(loaded.policy)


def test_a_dozen_scenarios_ship() -> None:
    assert len(list(SCENARIOS.glob("*.toml"))) >= 12


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("cores = 2", "coers = 2"), r"line 4: \[cluster\] has no key 'coers'.*\"cores\""),
        (("probes = 3", "d = 3"), r"line 9: \[policy\] has no key 'd'"),
        (("probes = 3", "probes = 0"), r"line 9: policy.probes: .*>= 1"),
        (("task_s = 0.1", "task_ms = 1"), r"line 14: \[workload\] has no key 'task_ms'.*task_s"),
        (("jobs = 50", 'jobs = "x"'), "line 12: workload.jobs: expected a whole number"),
        (("jobs = 50", ""), r"workload needs a key 'jobs'"),
        (("[workload]", "[wrkload]"), "has no key 'wrkload'|needs a key 'workload'"),
        (('name = "sparrow"', 'name = "sparow"'), "did you mean 'sparrow'"),
        (('name = "sparrow"', ""), "needs a name"),
        (("jobs = 50", 'kind = "cobol"'), "'cobol' is not one of"),
        (("[workload]", "[[events]]\nat_s = 1\nkind = 'fail'\n[workload]"), "names 0"),
        (("servers = 10", "servers = 10 10"), "line 3, column"),
    ],
)
def test_mistakes_are_named_with_their_line(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    path = _write(tmp_path, SMALL.replace(*change))
    with pytest.raises((ConfigurationError, SimulationError), match=words):
        load_scenario(path)


def test_a_topology_in_pieces_is_refused_before_anything_runs(tmp_path: Path) -> None:
    text = (
        SMALL
        + """
[topology]
nodes = [{name = "a", kind = "server"}, {name = "b", kind = "server"}, {name = "c"}]
links = [{between = ["a", "c"]}]
"""
    )
    with pytest.raises(TopologyError, match="2 pieces: "):
        load_scenario(_write(tmp_path, text))


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    text = (
        SMALL
        + """
[topology]
nodes = [{name = "a", kind = "server"}]
links = [{between = ["a", "z"]}]
"""
    )
    with pytest.raises(TopologyError, match="'z', and there is no such node"):
        load_scenario(_write(tmp_path, text))


def test_an_event_for_a_node_that_is_not_there_is_refused(tmp_path: Path) -> None:
    text = SMALL + "[topology]\nspines = 2\nleaves = 3\n[[events]]\nat_s = 1\nkind = 'fail'\n"
    loaded = load_scenario(_write(tmp_path, text + "node = 'leaf-9'\n"))
    with pytest.raises(TopologyError, match="no node 'leaf-9'"):
        loaded.run()


def test_more_than_ever_fits_is_refused(tmp_path: Path) -> None:
    loaded = load_scenario(_write(tmp_path, SMALL + "cores = 3\n"))
    with pytest.raises(ScenarioError, match="needs 3 cores for one task, and no server"):
        loaded.run()


def test_the_fast_engine_says_why_it_cannot(tmp_path: Path) -> None:
    loaded = load_scenario(_write(tmp_path, SMALL + '[run]\nengine = "fast"\nsample_s = 1\n'))
    with pytest.raises(ScenarioError, match="topology, events or samples"):
        loaded.run()


def test_the_story_of_the_document(tmp_path: Path) -> None:
    """Jobs run locally or are forwarded; a spine dies, a leaf joins, priorities preempt."""
    loaded = load_scenario(SCENARIOS / "leaf-spine-story.toml")
    outcome, topology = loaded.run()
    assert topology is not None
    assert (outcome.end_ns >= 0).all()
    assert [text for _, text in outcome.marks] == [
        "leaf-5 fails",
        "spine-0 fails",
        "leaf-5 returns",
        "spine-0 returns",
    ]
    leaf_5 = topology.servers.index(topology.node("leaf-5"))
    there = outcome.task_server == leaf_5
    assert there.any()
    assert outcome.task_start_ns[there].min() >= 8e9
    assert outcome.preemptions == len(outcome.preempted_ns) > 0
    assert outcome.local is not None
    assert 0.1 < outcome.local.mean() < 0.9  # run locally or forwarded
    assert len(outcome.belief_ages_ns) > 0  # some were forwarded
    while_dead = (outcome.task_start_ns > 5e9) & (outcome.task_start_ns < 12e9)
    assert while_dead.any()
    urgent = outcome.priority > 0
    response = outcome.end_ns - outcome.arrival_ns
    assert response[urgent].mean() < response[~urgent].mean()
    # While spine-0 is dead, its data takes the other one; it has its share again afterwards.
    samples = {round(sample.time_ns / 1e9, 1): sample.switch_bits for sample in outcome.samples}
    assert samples[5.4]["spine-0"] == samples[12.0]["spine-0"] > 0
    assert samples[12.0]["spine-1"] > samples[5.4]["spine-1"]
    assert samples[15.0]["spine-0"] > samples[12.0]["spine-0"]
    spines = {topology.nodes[topology.links[link].first].name for link in outcome.link_share}
    assert spines == {"spine-0", "spine-1"}


def test_run_writes_every_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["sim", "run", "leaf-spine-story", "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    summaries = json.loads((out / "summary.json").read_text())
    assert printed == summaries
    assert summaries[0]["jobs"] == 400
    with (out / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    table = pyarrow.parquet.read_table(out / "jobs.parquet").to_pylist()
    assert len(rows) == len(table) == 400
    assert {key: str(value) for key, value in table[17].items()} == rows[17]
    trace = json.loads((out / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in trace) == 800
    report = (out / "report.html").read_text()
    assert "spine-0 fails" in report
    for word in ("were forwarded", "were preempted", "Job data through each switch", "<svg"):
        assert word in report
    assert "<svg" in report
    assert report.count("cdn.plot.ly") == 0 or "<script src" not in report


def test_compare_runs_policies_on_the_same_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _write(tmp_path, SMALL)
    given = ["sim", "compare", str(path), "--policies", "ideal,central-fifo,random"]
    given += ["--loads", "0.5,0.9", "--seeds", "2", "--processes", "1", "--json"]
    assert main(given) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed) == 3 * 2 * 2
    for start in range(0, 12, 3):
        ideal, central, random = (one["response_mean_s"] for one in printed[start : start + 3])
        assert ideal < central < random


def test_an_interrupted_comparison_writes_the_runs_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = sim_sweep.on_cores

    def interrupted(*given: Any) -> Generator[tuple[int, Outcome], None, None]:
        ended = whole(*given)
        yield next(ended)
        ended.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(sim_sweep, "on_cores", interrupted)
    path, out = _write(tmp_path, SMALL), tmp_path / "out"
    given = ["sim", "compare", str(path), "--policies", "random,sparrow", "--processes", "1"]
    assert main([*given, "--out", str(out), "--json"]) == 130
    printed = json.loads(capsys.readouterr().out)
    assert len(printed) == 1
    assert json.loads((out / "summary.json").read_text()) == printed
    assert (out / "report.html").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--loads", "0"], "each above 0"),
        (["--loads", "nan"], "each above 0"),
        (["--loads", "0.5,x"], "expected loads such as"),
        (["--seeds", "0"], "expected a number from 1"),
        (["--processes", "0"], "expected a number from 1"),
        (["--policies", ""], "no policy ''"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["sim", "compare", "bursts", "--policies", "random", *given])
    except SystemExit as ending:
        code = ending.code
    assert code in (1, 2)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("task_s = 0.1", "task_s = 1e9"), "longer than can be counted"),
        (("task_s = 0.1", "task_s = inf"), "task_s: .*<= 1"),
        (("[cluster]", "[network]\none_way_ms = inf\n[cluster]"), "one_way_ms: .*<= 1"),
        (("[cluster]", "[run]\nload = nan\n[cluster]"), r"load: .*> 0"),
        (("[cluster]", "[run]\nseed = -1\n[cluster]"), r"seed: .*>= 0"),
        (("jobs = 50", "jobs = 50\ntail_ratio = nan"), "tail_ratio: .*> 1"),
    ],
)
def test_numbers_that_are_none_are_refused(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    with pytest.raises((ConfigurationError, SimulationError), match=words):
        load_scenario(_write(tmp_path, SMALL.replace(*change))).run()


def test_an_outcome_travels_as_text() -> None:
    outcome, _ = load_scenario(SCENARIOS / "leaf-spine-story.toml").run()
    back = outcome_transfer.decode(outcome_transfer.encode(outcome))
    assert summary(back) == summary(outcome)
    assert back.marks == outcome.marks
    assert list(back.samples) == list(outcome.samples)
    assert (back.task_server == outcome.task_server).all()


@pytest.mark.parametrize("text", ["", "abc", "0" * 500, 7, None])
def test_what_is_no_outcome_is_refused(text: object) -> None:
    with pytest.raises(SimulationError, match="run on the swarm gave"):
        outcome_transfer.decode(text)


def test_a_comparison_that_needs_files_is_not_sent_to_a_swarm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["sim", "compare", "kth-easy", "--policies", "central-fifo", "--on-swarm"]) == 1
    assert "needs recorded work" in capsys.readouterr().err


def test_list_and_topology_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "list"]) == 0
    listed = capsys.readouterr().out
    assert "homes" in listed
    assert "leaf-spine-story" in listed
    assert main(["sim", "topology", "show", "oversubscribed"]) == 0
    assert "leaf-3" in capsys.readouterr().out
    svg = tmp_path / "picture.svg"
    assert main(["sim", "topology", "show", "oversubscribed", "--svg", str(svg)]) == 0
    assert svg.read_text().count("<circle") == 2 + 4 + 32
    assert main(["sim", "topology", "show", "bursts"]) == 1
    assert "has no [topology]" in capsys.readouterr().err


def test_without_its_packages_the_command_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "numba" else found(name)
    )
    assert main(["sim", "list"]) == 1
    assert "pip install 'mycel[sim]'" in capsys.readouterr().err


def test_an_unknown_scenario_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "run", "nowhere"]) == 1
    assert "no scenario 'nowhere'" in capsys.readouterr().err


def test_an_interrupted_run_keeps_what_there_is(tmp_path: Path) -> None:
    loaded = load_scenario(
        _write(tmp_path, SMALL.replace("jobs = 50", "jobs = 9000") + "[run]\nsample_s = 1\n")
    )

    def stop(finished: int, total: int) -> None:
        raise KeyboardInterrupt

    outcome, _ = loaded.run(progress=stop)
    assert outcome.interrupted
    assert summary(outcome)["messages_per_task"] > 6  # of the tasks that ended, not of all
    assert 0 < (outcome.end_ns >= 0).sum() < 9000


@pytest.mark.parametrize("name", ["kth-easy", "philly", "azure-llm", "openb-gpus"])
def test_recorded_work_runs(name: str) -> None:
    data = Path(os.environ.get("MYCEL_DATA", "../shared/data")) / "traces"
    if not data.is_dir():
        pytest.skip("the traces are not here: set MYCEL_DATA to the folder that has them")
    loaded = load_scenario(SCENARIOS / f"{name}.toml")
    assert isinstance(loaded.workload, TraceSpec)
    loaded.workload = msgspec.structs.replace(loaded.workload, limit=150)
    outcome, _ = loaded.run()
    assert len(outcome.end_ns) == 150
    assert (outcome.end_ns >= 0).all()


def test_a_missing_trace_says_where_it_was_looked_for(tmp_path: Path) -> None:
    text = '[workload]\nkind = "swf"\npath = "nowhere.swf"\n'
    with pytest.raises(TraceError, match=r"no file nowhere\.swf \(looked in .*MYCEL_DATA"):
        load_scenario(_write(tmp_path, text)).run()
