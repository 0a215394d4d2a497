"""A changed configuration in a swarm that runs; see also `test_document`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from blake3 import blake3

from .conftest import SwarmMaker
from .rest import call
from .swarm import Finished, Swarm, eventually


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


def test_an_algorithm_that_was_installed_meanwhile_is_taken_over(
    make_swarm: SwarmMaker, tmp_path: Path
) -> None:
    swarm = make_swarm()
    swarm.environment["PYTHONPATH"] += f":{tmp_path}"
    swarm.up(workers=1)
    (tmp_path / "mycel_late.py").write_text("def late(mask, view):\n    yield mask\n")
    about = tmp_path / "mycel_late-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mycel-late\nVersion: 1.0\n")
    points = "[mycel.selection]\nlate = mycel_late:late\nbroken = mycel_late:nothing\n"
    (about / "entry_points.txt").write_text(points)
    settings = swarm.home / "mycel.toml"
    before = settings.read_text()

    def choose(name: str) -> Finished:
        key = f'[scheduler]\nselection_algorithm = "{name}"\n'
        settings.write_text(before.replace("[scheduler]\n", key, 1))
        return swarm.mycel("reload", "--json")

    refused = choose("broken")
    assert refused.code == 1
    assert "cannot be loaded" in refused.json["scheduler"]["error"]
    taken = choose("late")
    assert taken.code == 0
    assert taken.json["scheduler"]["applied"] == ["scheduler.selection_algorithm"]
    assert swarm.mycel("run", "--", "true").code == 0


def test_the_roles_say_what_they_have_made_of_it(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm("")
    swarm.up(workers=1)
    settings = swarm.home / "mycel.toml"
    settings.write_text("[scheduler]\ntask_timeout = 9\nlease_seconds = 20\n")
    due = ["scheduler.lease_seconds"]
    for applied in (["scheduler.task_timeout"], []):
        told = swarm.mycel("reload", "--json").json
        assert told["scheduler"] == {"applied": applied, "needs_restart": due}
        assert told["worker-1"] == {"applied": [], "needs_restart": due}
    settings.write_text("")
    assert swarm.mycel("reload", "--json").json["scheduler"]["needs_restart"] == []


def test_limits_of_files_are_taken_over(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    swarm.up(workers=1)
    body = b"x" * 2000
    upload = f"/api/v1/blobs/blake3:{blake3(body).hexdigest()}"
    path = swarm.home / "scheduler" / "config.toml"
    path.write_text(path.read_text() + "\n[scheduler.files]\nmax_blob_size = 1000\n")
    os.kill(swarm.pids["scheduler"], signal.SIGHUP)
    [told] = eventually(lambda: logged(swarm, "reloaded"), "it is taken over")
    assert told["applied"] == ["scheduler.files.max_blob_size"]
    assert call(swarm, "PUT", upload, body).status == 413
