"""What every driver promises holds for tasks in the sandbox and within limits, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycel.testing.drivers.conformance import PROMISES, Promise, keep, named
from tests.adapters.drivers.subjects import write_module

from .subjects import HELD, skip_if_missing


@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize("promise", PROMISES, ids=named)
def test_promises(promise: Promise, kind: str, tmp_path: Path) -> None:
    skip_if_missing(kind)
    write_module(tmp_path)
    keep(promise, HELD[kind](tmp_path), tmp_path)
