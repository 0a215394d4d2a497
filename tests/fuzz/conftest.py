"""A node under siege, for tests that ask for it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .hostile import build
from .siege import Siege, siege


@pytest.fixture(scope="session")
def program() -> Path:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing: the hostile speaker cannot be built")
    return build()


@pytest.fixture
async def besieged(program: Path) -> AsyncIterator[Siege]:
    async with siege(program, seed=7) as made:
        yield made
