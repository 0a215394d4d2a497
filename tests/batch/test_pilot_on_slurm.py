"""Workers of a swarm inside Slurm's allocations: as many as the queue deserves, and gone after."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.swarm import REPOSITORY, Swarm, eventually

from .slurm_cluster import SlurmCluster

TASK = {"python": "math:factorial", "requirements": {"labels": {"place": "slurm"}}}
WORKER = """
[worker]
cpu_cores = 1
memory = 500000000
sandbox = "off"
labels = { place = "slurm" }
"""


def test_workers_come_with_the_work_and_go_with_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    swarm = Swarm(tmp_path / "home")
    pilot = None
    try:
        swarm.up(workers=1)
        invite = tmp_path / "invite"
        invite.write_text(swarm.mycel("invite", "--joins", "10").out)
        (tmp_path / "worker.toml").write_text(WORKER)
        with (tmp_path / "pilot.log").open("wb") as log:
            pilot = subprocess.Popen(
                [sys.executable, "-m", "mycel", "cluster", "pilot", str(tmp_path / "pilot"),
                 "--home", str(swarm.home), "--join", str(invite), "--most", "2",
                 "--tasks-per-worker", "5", "--idle", "2", "--look", "0.5", "--memory", "100MB",
                 "--config", str(tmp_path / "worker.toml")],
                env={**swarm.environment, **slurm.settings_of_commands},
                cwd=REPOSITORY, stdout=log, stderr=log,
            )  # fmt: skip
        job = swarm.client.submit_job(TASK, arguments=[[number] for number in range(40)])
        done = swarm.client.wait_job(job.id, timeout=120)
        assert done.state == "succeeded", (tmp_path / "pilot.log").read_text()
        values = {result.index: result.value for result in swarm.client.results(job.id)}
        assert (values[0], values[5]) == (1, 120)
        ran_on = {worker.name for worker in swarm.client.workers()} - {"worker-1"}
        assert ran_on
        assert all(name.startswith("pilot-") for name in ran_on)
        eventually(
            lambda: not slurm.run("squeue", "--noheader").strip(), "the allocations have ended", 60
        )
        assert pilot.poll() is None, "it waits for more work"
        pilot.send_signal(signal.SIGTERM)
        assert pilot.wait(60) == 0
    finally:
        if pilot is not None and pilot.poll() is None:
            pilot.kill()
            pilot.wait()
        swarm.stop()
