"""The clusters that tests start: whole, apart from each other, and gone afterwards."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.swarm import eventually

from .slurm_cluster import CONTROLLER, SlurmCluster, skip_without_slurm


def test_two_clusters_run_beside_each_other_and_leave_nothing(tmp_path: Path) -> None:
    skip_without_slurm()
    alpha = SlurmCluster(tmp_path / "alpha", "alpha", nodes=2)
    beta = SlurmCluster(tmp_path / "beta", "beta", nodes=1, gpus=2)
    with alpha, beta:
        for cluster in (alpha, beta):
            out = tmp_path / f"{cluster.name}.out"
            script = f'#!/bin/sh\necho "$SLURM_CLUSTER_NAME $SLURM_JOB_NODELIST" > {out}\n'
            cluster.run("sbatch", "--wait", "--mem=10", "--time=1", stdin=script)
            assert out.read_text().split() == [cluster.name, "n1"]
        alpha.run("sbatch", "--mem=10", "--time=1", stdin="#!/bin/sh\nsleep 600\n")
        assert alpha.processes()
        assert not set(alpha.processes()) & set(beta.processes())
    assert not alpha.processes()
    assert not beta.processes()


def test_a_controller_that_was_killed_knows_its_jobs_again(tmp_path: Path) -> None:
    skip_without_slurm()
    with SlurmCluster(tmp_path / "alpha", nodes=1) as cluster:
        job = cluster.run(
            "sbatch", "--parsable", "--hold", "--mem=10", "--time=1", stdin="#!/bin/sh\ntrue\n"
        ).strip()
        eventually(lambda: job_is_saved(cluster, job), "the controller saves its jobs")
        cluster.kill(CONTROLLER)
        cluster.start(CONTROLLER)
        cluster.wait_until_idle()
        assert job in cluster.run("squeue", "--noheader", "--format=%i").split()


def job_is_saved(cluster: SlurmCluster, job: str) -> bool:
    """Slurm saves up to some seconds after it has answered, and forgets what a crash catches."""
    script = cluster.folder / "state" / f"hash.{int(job) % 10}" / f"job.{job}" / "script"
    saved = cluster.folder / "state" / "job_state"
    return saved.exists() and saved.stat().st_mtime_ns > script.stat().st_mtime_ns
