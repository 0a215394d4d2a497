"""A swarm's work, exported on one machine and taken in on another."""

from __future__ import annotations

from pathlib import Path

from .conftest import SwarmMaker
from .swarm import Swarm

LONG = "x" * 2_000_000


def worked(swarm: Swarm, folder: Path) -> tuple[str, str]:
    """A task that has left files, and one with a long result."""
    swarm.up(workers=1)
    (folder / "data.txt").write_text("data\n")
    script = "mkdir sub; cat data.txt > out.txt; seq 100000 > sub/numbers"
    inputs = [str(folder / "data.txt")]
    outputs = ["out.txt", "sub"]
    left = swarm.client.submit_task(
        command=["sh", "-c", script], inputs=inputs, outputs=outputs, wait=30
    )
    assert left.state == "succeeded", left.error
    long = swarm.client.submit_task(python="operator:mul", arguments=["x", len(LONG)], wait=30)
    return left.id, long.id


def test_files_and_long_results_come_back(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    left, long = worked(swarm, tmp_path)
    export = tmp_path / "export.jsonl"
    done = swarm.mycel("store", "export", str(export))
    assert done.code == 0, done
    assert "1 long results and 3 files" in done.out
    refused = swarm.mycel("store", "export", str(export))
    assert (refused.code, "--force" in refused.err) == (1, True)
    assert swarm.mycel("store", "export", "--force", str(export)).code == 0
    again = swarm.mycel("store", "import", str(export))
    assert again.code == 1, "its scheduler runs"
    swarm.mycel("down")
    again = swarm.mycel("store", "import", str(export))
    assert (again.code, "exists already" in again.err) == (1, True), again
    assert swarm.mycel("store", "import", "--force", str(export)).code == 0

    other = make_swarm(name="other")
    taken = other.mycel("store", "import", str(export))
    assert taken.code == 0, taken
    other.up(workers=1)
    got = tmp_path / "got"
    assert other.mycel("get", left, str(got)).code == 0
    assert (got / "out.txt").read_text() == "data\n"
    assert (got / "sub" / "numbers").read_text().endswith("\n100000\n")
    assert other.client.result(long) == LONG
    rerun = other.mycel("rerun", left.partition(".")[0], "--wait")
    assert rerun.code == 0, rerun


def test_without_files_get_says_why_there_are_none(make_swarm: SwarmMaker, tmp_path: Path) -> None:
    swarm = make_swarm()
    left, _ = worked(swarm, tmp_path)
    export = tmp_path / "export.jsonl"
    done = swarm.mycel("store", "export", "--without-files", str(export))
    assert "3 files" in done.err
    swarm.mycel("down")
    other = make_swarm(name="other")
    assert other.mycel("store", "import", str(export)).code == 0
    other.up(workers=1)
    got = other.mycel("get", left, str(tmp_path / "got"))
    assert got.code == 1
    assert f"{left} left 2 files, which its scheduler has no longer" in got.err
