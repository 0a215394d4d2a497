"""`mycel bench drivers`, with so few tasks that its figures mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mycel.bench.drivers import driver_runs
from mycel.bench.drivers.driver_runs import NotMeasured, Order
from mycel.drivers.container.container_engine import Engine
from tests.adapters.drivers import podman

from .test_bench import folder, processes_of

__all__ = ["folder"]

COMMAND = [sys.executable, "-m", "mycel", "bench", "drivers", "--scale", "0.01"]


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    command = [*COMMAND, "--json", "--folder", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert not any(isinstance(value, dict | list) for value in figures.values())
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []
    return figures


def test_it_prints_one_flat_object_and_leaves_nothing(folder: Path) -> None:
    figures = bench(folder, "--only", "process", "--only", "python")
    for name in ("ref_spawn_per_s", "process_tasks_per_s", "python_tasks_per_s"):
        assert figures[name] > 0
    share = figures["process_tasks_per_s"] / figures["ref_spawn_per_s"]
    assert figures["process_share_of_bare"] > 0
    assert share > 0
    for name in ("process_sandboxed", "python_sandboxed"):
        measured = figures[f"{name}_tasks_per_s"]
        assert (measured is None) == bool(figures.get(f"{name}_reason"))


def test_what_cannot_be_measured_is_null_with_a_reason(folder: Path) -> None:
    figures = bench(folder, "--only", "container", "--engine-option=--no-such-option")
    assert figures["container_tasks_per_s"] is None
    assert figures["container_reason"]


def test_containers_beside_their_engine_alone(folder: Path) -> None:
    reason = podman.missing()
    if reason:
        pytest.skip(reason)
    figures = bench(folder, "--only", "container")
    assert figures["ref_container_per_s"] > 0
    assert figures["container_tasks_per_s"] > 0, figures


def test_a_task_that_fails_ends_the_measurement(tmp_path: Path) -> None:
    broken = Engine("podman", "/bin/false")
    order = Order(driver="container", count=2, folder=str(tmp_path), engine=broken, image="nothing")
    with pytest.raises(NotMeasured, match="nothing"):
        driver_runs.measure(order)
