"""Tasks that name no resources get what their kind was seen to use, also after a restart."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from .conftest import SwarmMaker
from .swarm import Swarm

MEBIBYTE = 1 << 20
HUNGRY = "held = bytearray(b'x') * (300 << 20)"
TASK: dict[str, Any] = {"command": [sys.executable, "-c", HUNGRY]}


def shape(swarm: Swarm, task: dict[str, Any]) -> Any:
    [found] = swarm.client.preview_job({"task": task, "count": 3}).shapes
    return found


def test_what_was_seen_is_reserved_after_a_restart_too(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm('[worker]\ncpu_cores = 2\nmemory = "4GB"\n')
    swarm.up(workers=1)
    before = shape(swarm, TASK)
    assert (before.source, before.requirements, before.tasks) == ("default", {"cpu_cores": 1.0}, 3)
    assert (before.workers_known, before.workers_able, before.workers_free) == (1, 1, 1)
    assert before.slots == 2
    done = swarm.client.submit_task(wait=30, **TASK)
    assert done.state == "succeeded", done
    after = shape(swarm, TASK)
    assert after.source == "seen"
    assert after.requirements == {"cpu_cores": 1.0, "min_memory": 512 * MEBIBYTE}
    assert shape(swarm, {**TASK, "requirements": {"cpu_cores": 0.5}}).source == "given"
    second = swarm.client.submit_task(**TASK)
    assert second.requirements["min_memory"] == 512 * MEBIBYTE
    assert swarm.mycel("down").code == 0
    swarm.up(workers=1)
    assert shape(swarm, TASK).requirements == after.requirements


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_dry_run_says_what_is_missing_and_submits_nothing(
    swarm: Swarm, tmp_path: Any, options: tuple[str, ...]
) -> None:
    file = tmp_path / "a.toml"
    file.write_text('count = 7\n[task]\ncommand = ["a"]\nrequirements = { min_memory = "9TB" }\n')
    before = [job.id for job in swarm.client.jobs(limit=1)]
    done = swarm.mycel("submit", str(file), "--dry-run", *options)
    assert done.code == 0, done
    if options:
        [found] = done.json["shapes"]
        assert (found["tasks"], found["workers_able"], found["workers_known"]) == (7, 0, 2)
        assert "9 TB" in found["missing"][0]["reason"]
    else:
        assert done.out.startswith("7 tasks\n")
        assert "no known worker can run this" in done.out
    assert [job.id for job in swarm.client.jobs(limit=1)] == before
