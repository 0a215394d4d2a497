from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mycel.testing.drivers.conformance_stage import Stage, staged
from tests.adapters.drivers.subjects import write_module

from .subjects import HELD

Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario on a stage whose driver holds its tasks."""
    write_module(tmp_path)

    def play_it(kind: str, scenario: Callable[[Stage], Awaitable[None]], **options: Any) -> None:
        async def run() -> None:
            async with staged(HELD[kind](tmp_path, **options), tmp_path) as stage:
                await scenario(stage)

        asyncio.run(run())

    return play_it
