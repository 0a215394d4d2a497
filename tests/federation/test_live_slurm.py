"""A real Slurm becomes a graph, and its nodes say what they have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

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
