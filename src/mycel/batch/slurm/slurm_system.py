"""The interface of batch systems over `sbatch`, `squeue`, `scancel` and `sinfo`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mycel.batch.batch_system import ELEMENT_VARIABLE, Submission
from mycel.batch.commands import COMMAND_SECONDS, Commands, Said
from mycel.batch.errors import BatchError
from mycel.core.agent.batch_jobs import BatchEntry, BatchFailure, Capacity, Estimate

from . import slurm_answers

_KEEP: Final = ("SLURM_CONF", "SLURM_CLUSTERS", "LD_LIBRARY_PATH")


class SlurmSystem:
    """`extra` are variables for the commands, such as SLURM_CONF. `clock` tells wall time."""

    def __init__(
        self,
        extra: Mapping[str, str] | None = None,
        *,
        seconds: float = COMMAND_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        variables = {"SLURM_TIME_FORMAT": "%s", **(extra or {})}
        self._commands = Commands(keep=_KEEP, extra=variables, seconds=seconds)
        self._clock = clock
        self._user: Final = str(os.geteuid())

    def submit(self, submission: Submission) -> str:
        said = self._sbatch(submission, "--parsable")
        _check("sbatch", said)
        return slurm_answers.read_submitted(said.out)

    def queue(self, prefix: str) -> Sequence[BatchEntry]:
        said = self._run(
            "squeue", "--noheader", "--array", "--states=all", f"--user={self._user}",
            f"--format={slurm_answers.QUEUE_FORMAT}",
        )  # fmt: skip
        return slurm_answers.read_queue(said.out, prefix)

    def cancel(self, names: Sequence[str]) -> None:
        for name in names:  # scancel knows one name at a time
            self._run("scancel", "--quiet", f"--user={self._user}", f"--name={name}")

    def estimate(self, submission: Submission) -> Estimate:
        """It counts the whole time limits of what waits, and uses up a job number."""
        said = self._sbatch(submission, "--test-only")
        if said.code != 0:
            failure = slurm_answers.failure_of(said.error)
            if failure is BatchFailure.REFUSED:
                return Estimate(None, said.complaint)
            raise BatchError(failure, f"sbatch: {said.complaint}")
        return Estimate(max(0.0, slurm_answers.read_start(said.error) - self._clock()))

    def capacity(self, partition: str = "") -> Capacity:
        only = [f"--partition={partition}"] if partition else []
        nodes = self._run(
            "sinfo", "--noheader", "--Node", f"--format={slurm_answers.NODES_FORMAT}", *only
        )
        pending = self._run(
            "squeue", "--noheader", "--array", "--states=pending", "--format=%i", *only
        )
        return slurm_answers.read_capacity(nodes.out, pending.out)

    def _sbatch(self, submission: Submission, mode: str) -> Said:
        try:
            return self._commands.run(
                "sbatch", mode, *sbatch_options(submission), stdin=_script(submission.script)
            )
        except BatchError as error:
            # A full controller lets sbatch wait and try again, for longer than we do.
            if slurm_answers.failure_of(str(error)) is BatchFailure.FULL:
                raise BatchError(BatchFailure.FULL, str(error)) from None
            raise

    def _run(self, *command: str) -> Said:
        said = self._commands.run(*command)
        _check(command[0], said)
        return said


def sbatch_options(submission: Submission) -> list[str]:
    """`--no-requeue`, or Slurm would run a job again by itself. `--mem`, or it would get the whole
    node. `--time`, or nobody could estimate anything. `--export=ALL` of an environment that has
    next to nothing: any other value loads a login environment, which costs seconds."""
    job, folder = submission.job, submission.folder
    minutes, seconds = divmod(job.seconds, 60)
    options = [
        f"--job-name={submission.name}",
        "--no-requeue",
        "--export=ALL",
        f"--time={minutes}:{seconds:02}",
        f"--mem={job.memory_mb}M",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.tasks_per_node}",
        f"--cpus-per-task={job.cores_per_task}",
        f"--chdir={folder}",
        f"--output={folder}/slurm-%j.out",
    ]
    if job.elements:
        options.append(f"--array=0-{job.elements - 1}")
    if job.gpus_per_node:
        options.append(f"--gres=gpu:{job.gpus_per_node}")
    if job.notice_seconds:
        options.append(f"--signal=B:TERM@{job.notice_seconds}")
    if job.exclusive:
        options.append("--exclusive")
    named = (("account", job.account), ("partition", job.partition), ("qos", job.qos))
    return [*options, *(f"--{name}={value}" for name, value in named if value)]


def _script(script: str) -> str:
    first, _, rest = script.partition("\n")
    return f"{first}\n{ELEMENT_VARIABLE}=${{SLURM_ARRAY_TASK_ID:-0}}\n{rest}"


def _check(program: str, said: Said) -> None:
    if said.code != 0:
        failure = slurm_answers.failure_of(said.error)
        raise BatchError(failure, f"{program}: {said.complaint}")
