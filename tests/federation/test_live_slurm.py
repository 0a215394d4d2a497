"""A real Slurm becomes a graph, and its nodes say what they have."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mycel.cli.main import main
from mycel.federation.extraction import sources
from tests.batch.slurm_cluster import SlurmCluster, skip_without_slurm
from tests.end_to_end.swarm import eventually


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """Three nodes of four cores and two GPUs."""
    skip_without_slurm()
    with SlurmCluster(tmp_path / "alpha", nodes=3, gpus=2) as cluster:
        for name, value in cluster.settings_of_commands.items():
            monkeypatch.setenv(name, value)
        yield cluster


def spec(folder: Path, nodes: int, gpus: int, need: str = "") -> str:
    path = folder / "job.toml"
    path.write_text(
        f"nodes = {nodes}\n[task]\nrequirements = {{ cpu_cores = 2, gpus = {gpus} }}\n"
        f"[compatibility]\n{need}\n",
        encoding="utf-8",
    )
    return str(path)


def test_a_graph_and_the_facts_of_all_nodes(
    slurm: SlurmCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, facts = str(tmp_path / "graph.json"), str(tmp_path / "facts.json")
    extract = ("cluster", "extract", "slurm", "--name", "alpha", "--out", graph)
    assert main([*extract, "--probe", facts]) == 0
    assert capsys.readouterr().err == ""

    def satisfy(nodes: int, gpus: int, need: str = "") -> int:
        job = spec(tmp_path, nodes, gpus, need)
        return main(["cluster", "satisfy", graph, job, "--subsystem", f"compatibility={facts}"])

    assert satisfy(3, 2) == 0
    assert satisfy(4, 1) == 1
    assert satisfy(1, 3) == 1
    assert satisfy(3, 2, '"kernel.release" = ">=3"') == 0, "every node has said what it runs"
    assert satisfy(1, 2, '"kernel.release" = ">=999"') == 1


def test_a_full_node_and_one_that_is_down_hold_up_no_other(
    slurm: SlurmCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "WAIT_SECONDS", 5)
    script = "#!/bin/sh\nsleep 600\n"
    slurm.run("sbatch", "--nodelist=n1", "--exclusive", "--mem=0", "--time=10", stdin=script)
    slurm.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")

    def state(node: str) -> str:
        said = slurm.run("sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%T")
        return said.split()[0]

    eventually(lambda: state("n1") == "allocated", "n1 is full")
    eventually(lambda: state("n2") == "drained", "n2 is drained")
    graph, facts = tmp_path / "graph.json", tmp_path / "facts.json"
    assert main(["cluster", "extract", "slurm", "--out", str(graph), "--probe", str(facts)]) == 0
    said = capsys.readouterr().err
    assert "no facts of n1" in said
    assert "no facts of n2: it is down" in said
    nodes = json.loads(graph.read_text(encoding="utf-8"))["graph"]["nodes"]
    status = {one["metadata"]["name"]: one["metadata"]["status"] for one in nodes}
    assert (status["n1"], status["n2"], status["n3"]) == (0, 1, 0)
    attached = json.loads(facts.read_text(encoding="utf-8"))["graph"]["edges"]
    assert len(attached) == 1, "n3 answered"


def test_of_two_clusters_the_one_that_starts_first_gets_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are real, and are asked by `sbatch --test-only`."""
    skip_without_slurm()
    alpha = SlurmCluster(tmp_path / "alpha", "alpha", nodes=2, cpus=4)
    beta = SlurmCluster(tmp_path / "beta", "beta", nodes=1, cpus=8, gpus=1)
    home = ("--home", str(tmp_path / "home"))

    def run(*words: str, code: int = 0) -> Any:
        assert main(["cluster", *words, *home, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    def choose(nodes: int, cores: int, code: int = 0, gpus: int = 0) -> Any:
        path = tmp_path / "job.toml"
        path.write_text(
            f"nodes = {nodes}\ntime_limit = 600\n[task]\n"
            f"requirements = {{ cpu_cores = {cores}, gpus = {gpus}, min_memory = '1GB' }}\n",
            encoding="utf-8",
        )
        asked = [f"--ask={one.name}={one.configuration}" for one in (alpha, beta)]
        select = ("--select", "earliest-eta", "--deadline", "60")
        return run("choose", str(path), *select, *asked, code=code)

    with alpha, beta:
        for one in (alpha, beta):
            for name, value in one.settings_of_commands.items():
                monkeypatch.setenv(name, value)
            graph = str(tmp_path / f"{one.name}.json")
            assert main(["cluster", "extract", "slurm", "--name", one.name, "--out", graph]) == 0
            run("register", one.name, graph)
        script = "#!/bin/sh\nsleep 600\n"
        sleeper = ("sbatch", "--parsable", "--exclusive", "--mem=100", "--time=20")
        jobs = [alpha.run(*sleeper, stdin=script) for _ in range(2)]
        assert len(set(jobs)) == 2
        eventually(lambda: _running(alpha) == 2, "alpha is full")
        assert choose(1, 2)["cluster"] == "beta", "alpha would start it in twenty minutes"
        assert choose(2, 2)["cluster"] == "alpha", "beta has one node only"
        assert choose(1, 6)["cluster"] == "beta", "no node of alpha has six cores"
        assert choose(1, 1, gpus=1)["cluster"] == "beta"
        rejected = choose(2, 6, code=1)
        assert {name: why["level"] for name, why in rejected["refused"].items()} == {
            "alpha": "summary",
            "beta": "summary",
        }
        alpha.run("scancel", "--full", "--user", str(os.getuid()))
        eventually(lambda: _running(alpha) == 0, "alpha is empty")
        beta.run(*sleeper, stdin=script)
        eventually(lambda: _running(beta) == 1, "beta is full")
        assert choose(1, 2)["cluster"] == "alpha"
    said = choose(1, 2, code=1)
    assert {why["level"] for why in said["refused"].values()} == {"answer"}, "both are down"


def _running(cluster: SlurmCluster) -> int:
    return len(cluster.run("squeue", "--noheader", "--states=RUNNING").splitlines())
