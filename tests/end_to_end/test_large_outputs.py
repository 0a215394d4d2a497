"""Outputs that take long to read: they end with the attempt, whatever ends it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from mycel.client import Task

from .conftest import QUICK, SwarmMaker
from .swarm import Swarm, eventually, processes_of

SOON_SECONDS = 15.0
"""A machine under load; to read what is there takes much longer."""
HUGE = "900G"
SETTINGS = f"""{QUICK}
drain_seconds = 0.5

[worker.files]
cache_size = "1000GB"
"""


@pytest.fixture
def swarm(make_swarm: SwarmMaker) -> Swarm:
    swarm = make_swarm(SETTINGS)
    swarm.up(workers=1)
    return swarm


def gathering(swarm: Swarm, **fields: Any) -> Task:
    """A task that has ended and left a sparse file that takes minutes to read."""
    task = swarm.client.submit_task(
        command=["truncate", "-s", HUGE, "big"], outputs=["big"], **fields
    )
    worker = next(swarm.home.glob("worker-*"))
    eventually(lambda: list(worker.glob("tasks/files/run-*/big")), "the output is there")
    eventually(lambda: reads(worker, "big"), "it is being read")
    return task


def reads(worker: Path, name: str) -> bool:
    """Whether a process of this home has such a file open."""
    for process_id in processes_of(worker.parent):
        for path in Path(f"/proc/{process_id}/fd").glob("*"):
            try:
                if os.readlink(path).endswith(f"/{name}"):  # noqa: PTH115 - it may be gone
                    return True
            except OSError:
                continue
    return False


def test_what_is_too_large_is_refused_before_it_is_read(make_swarm: SwarmMaker) -> None:
    swarm = make_swarm(QUICK)
    swarm.up(workers=1)
    began = time.monotonic()
    task = swarm.client.submit_task(
        command=["truncate", "-s", "15T", "big"], outputs=["big"], wait=30
    )
    assert task.state == "failed"
    assert "'big' has 16.5 TB" in (task.error or "")
    assert "max_blob_size" in (task.error or "")
    assert len(task.attempts) == 1
    script = "for n in 1 2 3; do truncate -s 4G $n; done"
    task = swarm.client.submit_task(command=["sh", "-c", script], outputs=["*"], wait=30)
    assert task.state == "failed"
    assert "max_output_size" in (task.error or "")
    assert time.monotonic() - began < 2 * SOON_SECONDS


def test_a_time_out_ends_the_reading(swarm: Swarm) -> None:
    began = time.monotonic()
    task = gathering(swarm, timeout=2.0, retry={"max_attempts": 1})
    ended = swarm.client.wait(task.id, timeout=60)
    assert ended.state == "failed", ended
    assert "while its outputs were read" in (ended.error or "")
    assert time.monotonic() - began < SOON_SECONDS
    worker = next(swarm.home.glob("worker-*"))
    eventually(lambda: not reads(worker, "big"), "it is not read any more", 5.0)


def test_a_cancel_ends_the_reading(swarm: Swarm) -> None:
    task = gathering(swarm)
    began = time.monotonic()
    swarm.client.cancel(task.id)
    assert swarm.client.wait(task.id, timeout=60).state == "cancelled"
    worker = next(swarm.home.glob("worker-*"))
    eventually(lambda: not reads(worker, "big"), "it is not read any more", 5.0)
    assert time.monotonic() - began < SOON_SECONDS
    eventually(lambda: not list(worker.glob("tasks/files/run-*")), "its folder is removed")
    again = swarm.client.submit_task(
        command=["sh", "-c", "head -c 30000000 /dev/urandom > out"], outputs=["out"], wait=30
    )
    assert again.state == "succeeded", "a large output that is within the limits"
    assert again.outputs is not None
    assert again.outputs.size == 30_000_000


def test_down_ends_the_reading(swarm: Swarm) -> None:
    gathering(swarm)
    began = time.monotonic()
    done = swarm.mycel("down")
    assert done.code == 0, done
    eventually(lambda: not processes_of(swarm.home), "all processes have ended")
    assert time.monotonic() - began < SOON_SECONDS
