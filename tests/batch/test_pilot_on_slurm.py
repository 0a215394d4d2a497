"""Workers of a swarm inside Slurm's allocations: as many as the queue deserves, and gone after."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.swarm import REPOSITORY, Swarm, eventually

from .slurm_cluster import SlurmCluster

TASK = {"python": "time:sleep", "requirements": {"labels": {"place": "slurm"}}}
WORKER = """
[worker]
cpu_cores = 1
memory = 500000000
sandbox = "off"
labels = { place = "slurm" }
"""


def start_pilot(swarm: Swarm, slurm: SlurmCluster, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "pilot.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "mycel", "cluster", "pilot", str(folder / "pilot"),
             "--home", str(swarm.home), "--join", str(folder / "invite"), "--most", "2",
             "--tasks-per-worker", "5", "--idle", "1", "--look", "0.5", "--memory", "100MB",
             "--config", str(folder / "worker.toml")],
            env={**swarm.environment, **slurm.settings_of_commands},
            cwd=REPOSITORY, stdout=log, stderr=log,
        )  # fmt: skip


def pilots(swarm: Swarm) -> set[str]:
    return {one.name for one in swarm.client.workers() if one.name.startswith("pilot-")}


def test_workers_come_with_the_work_and_go_with_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The pilot is killed in between, and knows its allocations again."""
    swarm = Swarm(tmp_path / "home")
    pilot = None
    try:
        swarm.up(workers=1)
        (tmp_path / "invite").write_text(swarm.mycel("invite", "--joins", "10").out)
        (tmp_path / "worker.toml").write_text(WORKER)
        pilot = start_pilot(swarm, slurm, tmp_path)
        job = swarm.client.submit_job(TASK, arguments=[[0.2]] * 20)
        eventually(lambda: pilots(swarm), "a worker joins", 60)
        pilot.kill()
        pilot.wait()
        pilot = start_pilot(swarm, slurm, tmp_path)
        done = swarm.client.wait_job(job.id, timeout=120)
        assert done.state == "succeeded", (tmp_path / "pilot.log").read_text()
        assert len(pilots(swarm)) <= 2
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
