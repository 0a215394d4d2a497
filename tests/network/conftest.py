"""The made-up internet, for tests that ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .internet import Internet
from .namespaces import why_unavailable

pytest.importorskip("mycel._native", reason="the swarm needs the native extension")


@pytest.fixture(scope="session")
def namespaces() -> None:
    reason = why_unavailable()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def internet(namespaces: None, tmp_path: Path) -> Iterator[Internet]:
    made = Internet(tmp_path)
    try:
        yield made
    finally:
        made.remove()
