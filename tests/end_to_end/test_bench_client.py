"""`mycel bench client`, with so few calls that its figures mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_bench import folder, processes_of

pytest.importorskip("numpy", reason="numpy is not installed")
__all__ = ["folder"]


def test_it_prints_one_flat_object_and_leaves_nothing(folder: Path) -> None:
    command = [sys.executable, "-m", "mycel", "bench", "client", "--json", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--scale", "0.01", "--folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        # Nobody's Ray is started for this.
        env={"XDG_CACHE_HOME": str(folder / "cache"), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["ray_bulk_per_s"] is None
    for name in ("mycel", "futures", "process_pool"):
        for kind in ("bulk_per_s", "one_by_one_per_s", "array_mb_per_s"):
            assert figures[f"{name}_{kind}"] > 0
    assert figures["own_module_of_plain"] > 0
    assert figures["array_of_reference"] > 0
    assert processes_of(folder) == []
