"""Swarms of real processes: one that cheap tests share, and own ones for what breaks things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .swarm import Swarm

pytest.importorskip("mycel._native", reason="the swarm needs the native extension")

QUICK: str = """
[scheduler]
lease_seconds = 3.0
heartbeat_seconds = 0.4

[scheduler.retry]
backoff_base = 0.5

[scheduler.fault_tolerance]
health_check_timeout = 0.8

[worker]
cpu_cores = 2
"""
"""Time-outs that a test can wait for."""

SwarmMaker = Callable[..., Swarm]


@pytest.fixture(scope="session")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Two workers of four cores each. Leave nothing in it that keeps a core."""
    made = Swarm(tmp_path_factory.mktemp("shared") / "home", "[worker]\ncpu_cores = 4\n")
    try:
        made.up(workers=2)
        yield made
    finally:
        made.stop()


@pytest.fixture
def make_swarm(tmp_path: Path) -> Iterator[SwarmMaker]:
    """Makes homes of a test's own; whatever runs in them is ended. Nothing is started."""
    made: list[Swarm] = []

    def make(settings: str = QUICK, name: str = "home") -> Swarm:
        made.append(Swarm(tmp_path / name, settings))
        return made[-1]

    yield make
    for one in made:
        one.stop()
