from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mycel.testing.drivers.conformance_harness import Harness, open_harness
from tests.adapters.drivers.subjects import write_module

from .subjects import HELD

Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario on a stage whose driver holds its tasks."""
    write_module(tmp_path)

    def play_it(kind: str, scenario: Callable[[Harness], Awaitable[None]], **options: Any) -> None:
        async def run() -> None:
            async with open_harness(HELD[kind](tmp_path, **options), tmp_path) as harness:
                await scenario(harness)

        asyncio.run(run())

    return play_it
