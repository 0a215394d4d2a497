"""Two real Slurm clusters say when a job would start, and it goes where that is earliest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mycel.batch.forecast import forecast
from mycel.batch.slurm.slurm_system import SlurmSystem
from mycel.core.agent.batch_jobs import ClusterJob, EtaSource
from mycel.testing.batch.conformance import Harness
from mycel.testing.batch.memory_batch import MemoryBatch
from tests.end_to_end.swarm import REPOSITORY, eventually

from .slurm_cluster import SlurmCluster, skip_without_slurm


def job(**needs: int) -> ClusterJob:
    fields = {"memory_mb": 10, "seconds": 60, **needs}
    return ClusterJob(command=("true",), **fields).checked()  # type: ignore[arg-type]


def test_a_full_cluster_bids_later_and_what_fits_nowhere_is_refused(tmp_path: Path) -> None:
    skip_without_slurm()
    alpha = SlurmCluster(tmp_path / "alpha", "alpha", nodes=1, cpus=8)
    beta = SlurmCluster(tmp_path / "beta", "beta", nodes=2, cpus=4)
    with alpha, beta:
        hold = ("--mem=10", "--time=10", "--cpus-per-task=8")
        alpha.run("sbatch", *hold, stdin="#!/bin/sh\nsleep 600\n")
        eventually(lambda: alpha.run("squeue", "--noheader", "--states=R").strip(), "it is full")
        systems = {one.name: SlurmSystem(one.settings_of_commands) for one in (alpha, beta)}

        def starts(wanted: ClusterJob) -> dict[str, float | None]:
            bids = {name: forecast(system, wanted) for name, system in systems.items()}
            assert {bid.source for bid in bids.values()} == {EtaSource.BATCH_SYSTEM}
            assert all(bid.refusal for bid in bids.values() if bid.starts_in is None)
            return {name: bid.starts_in for name, bid in bids.items()}

        small = starts(job(cores_per_task=4))
        assert small["beta"] is not None
        assert small["alpha"] is not None
        assert small["beta"] < 60 < 300 < small["alpha"], "its ten minutes are counted whole"
        (tmp_path / "beta-jobs").mkdir()
        harness = Harness(systems["beta"], tmp_path / "beta-jobs")
        systems["beta"].submit(harness.submission("goes", "echo > went", cores_per_task=4))
        eventually((tmp_path / "beta-jobs" / "went").exists, "it runs where it starts first")
        wide = starts(job(cores_per_task=6))
        assert wide["alpha"] is not None
        assert wide["beta"] is None
        assert starts(job(cores_per_task=9)) == {"alpha": None, "beta": None}


def test_the_command_says_when_and_by_what(slurm: SlurmCluster) -> None:
    def ask(*needs: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mycel", "cluster", "estimate", "--memory", "10MB", *needs],
            env=slurm.environment, cwd=REPOSITORY, capture_output=True, text=True,
        )  # fmt: skip

    fits = ask("--cores", "1")
    assert fits.returncode == 0, fits
    assert fits.stdout.endswith("s, by the batch system\n")
    never = ask("--cores", "99")
    assert never.returncode == 1, never
    assert never.stdout.startswith("never: ")
    assert ask("--cores", "0").returncode == 2


@pytest.mark.parametrize(("cores", "starts_in"), [(2, 0.0), (99, None)])
def test_a_system_without_a_forecast_is_judged_by_its_queue(
    monkeypatch: pytest.MonkeyPatch, cores: int, starts_in: float | None
) -> None:
    monkeypatch.setattr(MemoryBatch, "estimate", lambda *_: None)
    bid = forecast(MemoryBatch(nodes=1, cores=4), job(cores_per_task=cores))
    assert bid.source is EtaSource.QUEUE_LENGTH
    assert bid.starts_in == starts_in
