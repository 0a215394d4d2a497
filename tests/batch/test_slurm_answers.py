"""A Slurm that is down, slow, full or prints nonsense: errors that say whether to ask again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mycel.batch.batch_system import Submission
from mycel.batch.errors import BatchError
from mycel.batch.slurm import slurm_answers
from mycel.batch.slurm.slurm_system import SlurmSystem, sbatch_options
from mycel.core.agent.batch_jobs import BatchFailure, BatchState, ClusterJob

from .slurm_cluster import CONTROLLER, SlurmCluster, skip_without_slurm

JOB = ClusterJob(command=("true",), memory_mb=10, seconds=90)


def submission(folder: Path, job: ClusterJob = JOB) -> Submission:
    return Submission(name="mycel-x", job=job, script="#!/bin/sh\ntrue\n", folder=folder)


def pretended(folder: Path, body: str, *, seconds: float = 30) -> SlurmSystem:
    """A Slurm whose commands all are this shell script."""
    for name in ("sbatch", "squeue", "scancel", "sinfo"):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    return SlurmSystem({"PATH": f"{folder}:{os.environ['PATH']}"}, seconds=seconds)


def failure(system: SlurmSystem, folder: Path) -> BatchError:
    with pytest.raises(BatchError) as caught:
        system.submit(submission(folder))
    return caught.value


def test_no_requeue_memory_and_time_are_always_given(tmp_path: Path) -> None:
    options = sbatch_options(submission(tmp_path))
    assert {"--no-requeue", "--mem=10M", "--time=1:30"} <= set(options)


def test_account_partition_qos_and_arrays_pass_through(tmp_path: Path) -> None:
    job = ClusterJob(
        command=("true",), account="lab", partition="gpu,main", qos="high", elements=20,
        nodes=2, tasks_per_node=3, cores_per_task=4, gpus_per_node=1, exclusive=True,
    )  # fmt: skip
    options = set(sbatch_options(submission(tmp_path, job.checked())))
    assert {"--account=lab", "--partition=gpu,main", "--qos=high", "--array=0-19"} <= options
    assert {"--nodes=2", "--ntasks-per-node=3", "--cpus-per-task=4", "--gres=gpu:1"} <= options
    assert "--exclusive" in options


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Batch job submission failed: Unable to contact slurm controller", BatchFailure.DOWN),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", BatchFailure.SLOW),
        ("Slurm temporarily unable to accept job, sleeping and retrying", BatchFailure.FULL),
        ("Batch job submission failed: Invalid account or account/partition", BatchFailure.REFUSED),
        ("allocation failure: Requested node configuration is not", BatchFailure.REFUSED),
        ("fatal: Could not establish a configuration source", BatchFailure.MISSING),
        ("the dog has eaten it", BatchFailure.NONSENSE),
    ],
)
def test_what_slurm_says_tells_whether_to_ask_again(
    tmp_path: Path, said: str, expected: BatchFailure
) -> None:
    error = failure(pretended(tmp_path, f"echo 'sbatch: error: {said}' >&2; exit 1"), tmp_path)
    assert error.failure is expected
    assert said in str(error)


@pytest.mark.parametrize("printed", ["", "Submitted!", "-1", "12 13", "１２", "9" * 40])
def test_a_job_number_that_is_none_is_nonsense(tmp_path: Path, printed: str) -> None:
    error = failure(pretended(tmp_path, f"echo '{printed}'"), tmp_path)
    assert error.failure is BatchFailure.NONSENSE


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    """With what it has started, and although that holds its output open."""
    system = pretended(tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid; wait", seconds=1)
    assert failure(system, tmp_path).failure is BatchFailure.SLOW


def test_a_full_controller_that_lets_sbatch_wait_is_full(tmp_path: Path) -> None:
    said = "echo 'Slurm temporarily unable to accept job, sleeping and retrying' >&2"
    system = pretended(tmp_path, f"{said}; sleep 600", seconds=1)
    assert failure(system, tmp_path).failure is BatchFailure.FULL


def test_programs_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(BatchError, match="squeue") as caught:
        SlurmSystem({"PATH": str(tmp_path)}).queue("mycel-")
    assert caught.value.failure is BatchFailure.MISSING


@pytest.mark.parametrize(
    "line",
    ["x", "1|RUNNING|None", "a_b|RUNNING|None|mycel-x", "1_[0-3]|PENDING|None|mycel-x",
     "1|*|None|mycel-x", "1||None|mycel-x", f"{'9' * 50}|RUNNING|None|mycel-x"],
)  # fmt: skip
def test_a_queue_that_cannot_be_read_is_nonsense(line: str) -> None:
    with pytest.raises(BatchError) as caught:
        slurm_answers.read_queue(line + "\n", "mycel-")
    assert caught.value.failure is BatchFailure.NONSENSE


def test_jobs_of_others_are_passed_over_whatever_their_names_are() -> None:
    out = "1|RUNNING|None|a|b 'c' %\n\n2_3|COMPLETING|None|mycel-x\n3|NEW_STATE|None|mycel-y\n"
    found = slurm_answers.read_queue(out, "mycel-")
    assert [(one.name, one.index, one.state) for one in found] == [
        ("mycel-x", 3, BatchState.ENDING),
        ("mycel-y", 0, BatchState.ENDING),
    ]


def test_a_job_that_waits_for_ever_is_told_apart() -> None:
    out = "1|PENDING|PartitionTimeLimit|mycel-x\n2|PENDING|Resources|mycel-y\n"
    found = {one.name: one.state for one in slurm_answers.read_queue(out, "mycel-")}
    assert found == {"mycel-x": BatchState.HOPELESS, "mycel-y": BatchState.PENDING}


@pytest.mark.parametrize("out", ["n1", "n1|1/2/3", "n1|a/b/c/d", "|0/4/0/4"])
def test_capacities_that_cannot_be_read_are_nonsense(out: str) -> None:
    with pytest.raises(BatchError):
        slurm_answers.read_capacity(out + "\n", "")


def test_a_node_of_two_partitions_counts_once() -> None:
    found = slurm_answers.read_capacity("n1|1/3/0/4\nn1|1/3/0/4\nn2|0/8/0/8\n", "5\n6_1\n")
    assert (found.idle_cores, found.cores, found.pending) == (11, 12, 2)


def test_a_real_controller_that_is_full_frozen_or_dead(tmp_path: Path) -> None:
    skip_without_slurm()
    with SlurmCluster(tmp_path / "alpha", nodes=1, settings="MaxJobCount=10") as cluster:
        system = SlurmSystem(cluster.settings_of_commands, seconds=10)
        folder = tmp_path / "jobs"
        folder.mkdir()
        too_long = ClusterJob(command=("true",), memory_mb=10, seconds=10 * 86_400)
        with pytest.raises(BatchError) as caught:
            system.submit(submission(folder, too_long))
        assert caught.value.failure is BatchFailure.REFUSED
        hold = ("--parsable", "--hold", "--mem=10", "--time=1", "--array=0-5")
        cluster.run("sbatch", *hold, stdin="#!/bin/sh\ntrue\n")
        quick = SlurmSystem(cluster.settings_of_commands, seconds=2)
        with pytest.raises(BatchError) as caught:
            quick.submit(submission(folder, ClusterJob(command=("true",), elements=5)))
        assert caught.value.failure is BatchFailure.FULL
        cluster.freeze(CONTROLLER)
        with pytest.raises(BatchError) as caught:
            system.queue("mycel-")
        assert caught.value.failure is BatchFailure.SLOW
        cluster.kill(CONTROLLER)
        assert failure(system, folder).failure is BatchFailure.DOWN
