"""What a node needs of its system: open files, and a disk that takes its log."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest

from .conftest import SwarmMaker
from .swarm import Swarm, eventually


@pytest.fixture
def few_files() -> int:
    """A soft limit as most systems have it, for this process and what it starts."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] <= 1024:
        pytest.skip("the system allows no more open files than a node has anyway")
    return 1024


def test_nodes_may_open_more_files_than_usual_and_tasks_as_many_as_before(
    make_swarm: SwarmMaker, few_files: int
) -> None:
    swarm = make_swarm()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few_files, before[1]))
    try:
        swarm.up(workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for name, pid in swarm.pids.items():
        limits = Path(f"/proc/{pid}/limits").read_text()
        found = re.search(r"Max open files\s+(\d+)", limits)
        assert found is not None
        assert int(found[1]) > few_files, name
    done = swarm.mycel("run", "--", "sh", "-c", "ulimit -Sn")
    assert (done.code, done.out.strip()) == (0, str(few_files))


def test_log_lines_that_the_disk_does_not_take_are_counted(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm()
    folder = swarm.home / "scheduler"
    folder.mkdir()
    (folder / "log.jsonl").symlink_to("/dev/full")
    swarm.up(workers=1)
    assert swarm.mycel("run", "true").code == 0, "the work goes on"
    eventually(lambda: dropped(swarm) > 0, "the lost lines are counted")


def dropped(swarm: Swarm) -> float:
    found = re.search(
        r"^mycel_log_lines_dropped_total (\S+)$", swarm.client.metrics(), re.MULTILINE
    )
    assert found is not None
    return float(found[1])
