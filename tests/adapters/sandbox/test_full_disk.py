"""A disk without room: the task is told so, and the worker serves on when there is room again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycel.testing.drivers.conformance import Harness

from .conftest import Play
from .subjects import has_bubblewrap

ROOM = 1 << 20


@pytest.fixture
def little_room(tmp_path: Path) -> Iterator[Path]:
    """The drivers' folders on a file system of a megabyte."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    root = tmp_path / "root"
    root.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(root)],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode()}")
    yield root
    subprocess.run(["umount", str(root)], check=True)


@pytest.mark.parametrize("way", ["confined", "limited"])
def test_a_full_disk_fails_tasks_and_not_the_worker(
    way: str, play: Play, little_room: Path
) -> None:
    if way == "confined" and not has_bubblewrap:
        pytest.skip("bubblewrap is not installed: make test-tools")

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.run(("sh", "-c", "head -c 9000000 /dev/zero > file")))
        assert (end.state, end.driver_fault) == ("failed", False)
        assert b"No space left on device" in end.stderr
        assert (await harness.result_of(harness.quick())).state == "succeeded"

    play(f"{way} process", scenario)
