"""`mycel demo`: the first thing that anybody sees of it."""

from __future__ import annotations

import json
import subprocess
import sys


def test_a_sweep_survives_the_loss_of_a_worker() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mycel", "demo", "--json"], stdout=subprocess.PIPE, timeout=300
    )
    assert done.returncode == 0
    story = json.loads(done.stdout)
    assert (story["state"], story["tasks"]) == ("succeeded", 48)
    assert sum(story["per_worker"].values()) == 48
    assert set(story["per_worker"]) <= {"worker-1", "worker-2", "worker-3"}
    assert len(story["best"]) == 8
    if story["killed"] is not None:  # at that moment somebody ran something
        assert set(story["rerun"]) <= set(range(48))
        assert story["per_worker"].get(story["killed"], 0) < 48
