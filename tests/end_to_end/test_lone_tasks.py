"""Tasks that come one by one, each before the last has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import SwarmMaker
from .swarm import WORKLOAD, eventually

WORKERS = 3


@pytest.mark.parametrize("kind", ["process", "python"])
def test_each_gets_a_worker_while_there_are_idle_ones(
    make_swarm: SwarmMaker, tmp_path: Path, kind: str
) -> None:
    swarm = make_swarm("[worker]\ncpu_cores = 1\n")
    swarm.up(workers=WORKERS)
    script = f"until [ -e {tmp_path}/gate ]; do sleep 0.05; done"
    tasks = []
    for number in range(WORKERS):
        arguments = [str(tmp_path), f"task-{number}", "gate"]
        if kind == "process":
            task = swarm.client.submit_task(command=["sh", "-c", script])
        else:
            task = swarm.client.submit_task(python=f"{WORKLOAD}:wait_for", arguments=arguments)
        tasks.append(task)
        eventually(lambda: swarm.client.task(tasks[-1].id).state == "running", "it runs")
    assert len({swarm.client.task(task.id).worker for task in tasks}) == WORKERS
    (tmp_path / "gate").touch()
    assert all(swarm.client.wait(task.id, 30).state == "succeeded" for task in tasks)
