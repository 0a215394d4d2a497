"""Fixtures of more than one suite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from .api_server import Served, served
from .swarm_world import WORLDS, Story, play_in


@pytest.fixture(params=sorted(WORLDS))
def play(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Runs one story in each of the worlds."""
    return lambda story: asyncio.run(play_in(request.param, story))


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """One API server for all tests of a file."""
    with served() as server:
        yield server


@pytest.fixture
def server(shared: Served) -> Served:
    """The file's server, with a scheduler that has just begun."""
    shared.call(shared.backend.reset)
    return shared
