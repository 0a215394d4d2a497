"""`mycel bench models`: the figures, in short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .swarm import processes_of


def test_it_prints_flat_figures_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "mycel", "bench", "models", "--json", "--rounds", "1"],
        env=environment,
        stdout=subprocess.PIPE,
        timeout=120,
    )
    assert done.returncode == 0
    figures = json.loads(done.stdout)
    assert figures.pop("model_server") == "stand-in"
    assert set(figures) == {
        "model_first_token_ms_direct",
        "model_first_token_ms_swarm",
        "model_first_token_ms_added",
        "model_tokens_per_s_direct",
        "model_tokens_per_s_swarm",
        "model_tokens_percent_slower",
    }
    assert all(isinstance(value, float) for value in figures.values())
    assert figures["model_tokens_per_s_swarm"] > 1
    assert list((tmp_path / "cache" / "mycel" / "bench").iterdir()) == []
    assert processes_of(tmp_path) == {}
