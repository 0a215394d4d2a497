from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mycel.testing.drivers.conformance_stage import Stage, staged

from .subjects import SUBJECTS, write_module

Scenario = Callable[[Stage], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario on a stage."""
    write_module(tmp_path)

    def play_it(kind: str, scenario: Scenario, **options: Any) -> None:
        async def run() -> None:
            virtual = kind == "memory"
            async with staged(SUBJECTS[kind](**options), tmp_path, virtual=virtual) as stage:
                await scenario(stage)

        asyncio.run(run())

    return play_it
