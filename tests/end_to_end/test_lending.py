"""Machines that lend themselves only while their owner is away, and what they say of their use."""

from __future__ import annotations

from pathlib import Path

from .conftest import QUICK, SwarmMaker
from .swarm import Swarm, eventually


def test_workers_say_what_of_their_machine_is_in_use(swarm: Swarm) -> None:
    def measured() -> object:
        [first, *_] = swarm.client.get("/api/v1/workers")["items"]
        load = first["load"]
        return load["cpu_usage"] is not None and load

    load = eventually(measured, "a worker has looked")
    assert isinstance(load, dict)
    assert 0.0 <= load["cpu_usage"] <= 1.0
    assert 0.0 < load["memory_usage"] <= 1.0
    assert load["gpu_usage"] == []


def test_a_worker_lends_itself_while_its_owner_is_away(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    away, release = tmp_path / "away", tmp_path / "release"
    settings = f"""only_when_idle = true
idle_command = "test -e {away}"
owner_grace_seconds = 0.2
"""
    swarm = make_swarm(QUICK + settings)
    swarm.up(workers=1)
    script = f"echo begun; while [ ! -e {release} ]; do sleep 0.02; done"
    task = swarm.client.submit_task(command=["sh", "-c", script], retry={"max_attempts": 1})
    eventually(lambda: not swarm.worker("worker-1").accepting, "it is not lent")
    assert "its owner is using it" in swarm.mycel("explain", task.id).out
    away.touch()
    eventually(lambda: swarm.client.task(task.id).state == "running", "it is lent")
    away.unlink()
    eventually(lambda: swarm.client.task(task.id).state == "queued", "what ran was handed back")
    release.touch()
    away.touch()
    ended = swarm.client.wait(task.id)
    assert ended.state == "succeeded"
    assert "its owner is using it" in (ended.attempts[0].error or "")
