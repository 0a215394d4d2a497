"""Fixtures of more than one suite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from .swarm_world import WORLDS, Story, play_in


@pytest.fixture(params=sorted(WORLDS))
def play(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Runs one story in each of the worlds."""
    return lambda story: asyncio.run(play_in(request.param, story))
