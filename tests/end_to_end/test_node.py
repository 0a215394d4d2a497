"""`mycel node` and `mycel store`: real processes, one home."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from mycel.client import Client, NotRunning

from .conftest import SwarmMaker
from .swarm import Swarm, eventually


def serves(swarm: Swarm) -> bool:
    try:
        with Client.from_home(swarm.home) as client:
            return any(worker.state == "healthy" for worker in client.workers())
    except NotRunning:
        return False


def test_one_process_schedules_and_works(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    assert swarm.mycel("down").code == 0
    node = subprocess.Popen(
        swarm.command("node", "--port", "0"), env=swarm.environment, stdin=subprocess.DEVNULL
    )
    try:
        eventually(lambda: serves(swarm), "the node has its own worker")
        done = swarm.mycel("run", "--", "echo", "hello")
        assert (done.code, done.out) == (0, "hello\n")
        pids = {int((swarm.home / role / "lock").read_text()) for role in ("scheduler", "worker")}
        assert pids == {node.pid}
        checked = swarm.mycel("store", "check", "--json")
        assert (checked.code, checked.json["ok"]) == (0, True)
        assert checked.json["verdict"]["results"] == 1
    finally:
        os.kill(node.pid, signal.SIGTERM)
        assert node.wait(30) == 0
    export = tmp_path / "journal.jsonl"
    assert swarm.mycel("store", "export", str(export)).code == 0
    refused = swarm.mycel("store", "import", str(export))
    assert refused.code == 1
    assert "exists already" in refused.err
    (swarm.home / "scheduler" / "journal.db").unlink()
    assert swarm.mycel("store", "import", str(export)).code == 0
    assert swarm.mycel("store", "check").code == 0
    missing = swarm.mycel("store", "import", "/nowhere/at.all")
    assert (missing.code, "No such file" in missing.err) == (1, True)
