"""What every driver promises holds for tasks in the sandbox and within limits, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycel.drivers.conformance import PROMISES, Promise, keep, named
from tests.adapters.drivers.subjects import write_module

from .subjects import HELD, has_bubblewrap


@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize("promise", PROMISES, ids=named)
def test_promises(promise: Promise, kind: str, tmp_path: Path) -> None:
    if kind.startswith("confined") and not has_bubblewrap:
        pytest.skip("bubblewrap is not installed: scripts/install-test-tools")
    write_module(tmp_path)
    keep(promise, HELD[kind](tmp_path), tmp_path)
