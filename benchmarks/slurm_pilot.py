"""500 short Python tasks through four pilot workers in Slurm, beside 500 jobs of `sbatch` and one
array of 500, in turns on one cluster of fake nodes.

    python benchmarks/slurm_pilot.py [--tasks 500] [--rounds 2] [--json]

The pilot's time begins when the job is submitted, with no worker there: it includes the
allocations and the start of the workers. A second job finds them running. All fake nodes share
this machine, so the figures are only good for comparing the columns.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
if str(REPOSITORY) not in sys.path:  # run by its path
    sys.path.insert(0, str(REPOSITORY))

from mycel.console.tables import print_json, print_table  # noqa: E402
from tests.batch.slurm_cluster import SlurmCluster, missing_programs  # noqa: E402
from tests.end_to_end.swarm import Swarm, eventually  # noqa: E402

CALL: Final = "import math; math.factorial(20)"
TASK: Final = {"python": "math:factorial", "requirements": {"labels": {"place": "slurm"}}}
WORKERS: Final = 4
WAIT_SECONDS: Final = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure pilot workers beside sbatch.")
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if missing := missing_programs():
        print(f"no Slurm here: {', '.join(missing)} missing", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="mycel-pilot-") as place:
        rows = [_round(Path(place) / str(n), options.tasks) for n in range(options.rounds)]
    if options.json:
        print_json(rows)
    else:
        print_table(
            tuple(rows[0]), [tuple(f"{value:.1f}" for value in row.values()) for row in rows]
        )
    return 0


def _round(place: Path, tasks: int) -> dict[str, float]:
    place.mkdir()
    swarm = Swarm(place / "home")
    with SlurmCluster(place / "slurm", nodes=WORKERS, cpus=1) as cluster:
        try:
            swarm.up(workers=1)
            pilot = _pilot(swarm, cluster, place)
            try:
                cold = _timed(lambda: _through_pilot(swarm, tasks))
                _wait_for_workers(swarm)
                warm = _timed(lambda: _through_pilot(swarm, tasks))
            finally:
                pilot.send_signal(signal.SIGTERM)
                pilot.wait(WAIT_SECONDS)
        finally:
            swarm.stop()
        single = _timed(lambda: _through_sbatch(cluster, place / "single", tasks, array=False))
        array = _timed(lambda: _through_sbatch(cluster, place / "array", tasks, array=True))
    return {
        "pilot_cold_s": cold, "pilot_warm_s": warm, "sbatch_s": single, "sbatch_array_s": array,
        "sbatch_per_pilot_cold": single / cold, "array_per_pilot_cold": array / cold,
    }  # fmt: skip


def _timed(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def _pilot(swarm: Swarm, cluster: SlurmCluster, place: Path) -> subprocess.Popen[bytes]:
    invite = place / "invite"
    invite.write_text(swarm.mycel("invite", "--joins", "50").out)
    (place / "worker.toml").write_text(
        '[worker]\ncpu_cores = 1\nmemory = 500000000\nlabels = { place = "slurm" }\n'
    )
    command = [
        sys.executable, "-m", "mycel", "cluster", "pilot", str(place / "pilot"),
        "--home", str(swarm.home), "--join", str(invite), "--config", str(place / "worker.toml"),
        "--most", str(WORKERS), "--look", "1", "--idle", "600", "--memory", "500MB", "--grace", "5",
    ]  # fmt: skip
    environment = {**swarm.environment, **cluster.settings_of_commands}
    with (place / "pilot.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=place)


def _through_pilot(swarm: Swarm, tasks: int) -> None:
    job = swarm.client.submit_job(TASK, arguments=[[20]] * tasks)
    done = swarm.client.wait_job(job.id, timeout=WAIT_SECONDS)
    assert done.state == "succeeded", done


def _wait_for_workers(swarm: Swarm) -> None:
    """A cold job may end before all of them are there."""
    swarm.client.submit_job(
        {"command": ["sleep", "1"], "requirements": TASK["requirements"]}, count=WORKERS * 4
    )
    eventually(
        lambda: sum(one.name.startswith("pilot-") for one in swarm.client.workers()) == WORKERS,
        "all workers have joined",
        WAIT_SECONDS,
    )
    eventually(lambda: not swarm.client.stats()["jobs_open"], "they are idle", WAIT_SECONDS)


def _through_sbatch(cluster: SlurmCluster, place: Path, tasks: int, *, array: bool) -> None:
    """Each job leaves a file, and all of them are counted."""
    place.mkdir()
    element = "${SLURM_ARRAY_TASK_ID:-0}"
    script = f"#!/bin/sh\n{sys.executable} -c '{CALL}' && : > {place}/$SLURM_JOB_ID.{element}\n"
    options = ["--parsable", "--mem=100", "--time=5", "--output=/dev/null"]
    if array:
        cluster.run("sbatch", *options, f"--array=0-{tasks - 1}", stdin=script)
    else:
        for _ in range(tasks):
            cluster.run("sbatch", *options, stdin=script)
    eventually(lambda: len(list(place.iterdir())) == tasks, "all jobs have run", WAIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
