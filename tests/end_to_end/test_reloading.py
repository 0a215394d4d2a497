"""A changed configuration in a swarm that runs; see also `test_document`."""

from __future__ import annotations

import json
import os
import signal

from .conftest import SwarmMaker
from .rest import call
from .swarm import Swarm, eventually


def logged(swarm: Swarm, event: str) -> list[dict[str, object]]:
    lines = (swarm.home / "scheduler" / "log.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == event]


def test_a_mistake_changes_nothing(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    path = swarm.home / "scheduler" / "config.toml"
    path.write_text(path.read_text() + "\n[telemetry]\nlog_files_kept = -1\n")

    os.kill(swarm.pids["scheduler"], signal.SIGHUP)

    [told] = eventually(lambda: logged(swarm, "not_reloaded"), "the mistake is told")
    assert "telemetry.log_files_kept" in str(told["error"])
    assert call(swarm, "GET", "/readyz").status == 200
