from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mycel.testing.drivers.conformance_harness import Harness, open_harness

from .subjects import SUBJECTS, write_module

Scenario = Callable[[Harness], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario on a stage."""
    write_module(tmp_path)

    def play_it(kind: str, scenario: Scenario, **options: Any) -> None:
        async def run() -> None:
            virtual = kind == "memory"
            async with open_harness(
                SUBJECTS[kind](**options), tmp_path, virtual=virtual
            ) as harness:
                await scenario(harness)

        asyncio.run(run())

    return play_it
