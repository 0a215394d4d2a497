"""The clusters that tests start: whole, apart from each other, and gone afterwards."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.end_to_end.swarm import eventually

from .slurm_cluster import SlurmCluster, skip_without_slurm


def test_two_clusters_run_beside_each_other_and_leave_nothing(tmp_path: Path) -> None:
    skip_without_slurm()
    alpha = SlurmCluster(tmp_path / "alpha", "alpha", nodes=2)
    beta = SlurmCluster(tmp_path / "beta", "beta", nodes=1, gpus=2)
    with alpha, beta:
        for cluster in (alpha, beta):
            out = tmp_path / f"{cluster.name}.out"
            script = f'#!/bin/sh\necho "$SLURM_CLUSTER_NAME $SLURM_JOB_NODELIST" > {out}\n'
            cluster.run("sbatch", "--mem=10", "--time=1", stdin=script)
        for cluster in (alpha, beta):
            out = tmp_path / f"{cluster.name}.out"
            eventually(partial(_text, out), "a job ran")
            assert out.read_text().split() == [cluster.name, "n1"]
        alpha.run("sbatch", "--mem=10", "--time=1", stdin="#!/bin/sh\nsleep 600\n")
        assert alpha.processes()
        assert not set(alpha.processes()) & set(beta.processes())
    assert not alpha.processes()
    assert not beta.processes()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
