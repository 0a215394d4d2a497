"""`mycel sim compare --on-swarm` gives what the same comparison gives here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .swarm import Swarm

SCENARIO = """
[cluster]
servers = 10
cores = 2
schedulers = 3

[workload]
jobs = 40
tasks_per_job = 3
task_s = 0.1

[run]
engine = "reference"
"""


def _printed(swarm: Swarm, *arguments: str) -> Any:
    command = [sys.executable, "-m", "mycel", *arguments, "--json"]
    done = subprocess.run(
        command, env=swarm.environment, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_runs_as_tasks_are_the_runs_here(swarm: Swarm, tmp_path: Path) -> None:
    scenario = tmp_path / "small.toml"
    scenario.write_text(SCENARIO)
    given = ["sim", "compare", str(scenario), "--policies", "homes,hawk", "--loads", "0.5,0.9"]
    here = _printed(swarm, *given, "--processes", "1")
    out = tmp_path / "out"
    there = _printed(swarm, *given, "--on-swarm", "--home", str(swarm.home), "--out", str(out))
    assert there == here
    assert len(there) == 4
    assert (out / "report.html").exists()
    names = {task.name for task in swarm.client.tasks() if task.name.startswith("sim ")}
    assert names == {"sim homes 0.5", "sim homes 0.9", "sim hawk 0.5", "sim hawk 0.9"}
