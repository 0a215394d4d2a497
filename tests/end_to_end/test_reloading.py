"""A changed `mycel.toml` in a swarm that runs."""

from __future__ import annotations

import json
import os
import signal

from .conftest import SwarmMaker
from .rest import call
from .swarm import Swarm, eventually


def submit(swarm: Swarm, name: str = "") -> int:
    body = json.dumps({"command": ["true"], "name": name})
    return call(swarm, "POST", "/api/v1/tasks", body).status


def logged(swarm: Swarm, event: str) -> list[dict[str, object]]:
    lines = (swarm.home / "scheduler" / "log.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == event]


def test_limits_change_while_the_scheduler_runs(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    long = "x" * 200
    assert submit(swarm, long) == 201
    settings = swarm.home / "mycel.toml"
    settings.write_text(settings.read_text() + '[scheduler.api]\nmax_request_size = "100B"\n')

    done = swarm.mycel("reload", "--json")

    assert done.json["scheduler"]["applied"] == ["scheduler.api.max_request_size"]
    eventually(lambda: submit(swarm, long) == 413, "the limit is lower")


def test_a_mistake_changes_nothing(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    path = swarm.home / "scheduler" / "config.toml"
    path.write_text(path.read_text() + "\n[telemetry]\nlog_files_kept = -1\n")

    os.kill(swarm.pids["scheduler"], signal.SIGHUP)

    [told] = eventually(lambda: logged(swarm, "not_reloaded"), "the mistake is told")
    assert "telemetry.log_files_kept" in str(told["error"])
    assert submit(swarm) == 201
