"""What the document says: its keys, its metrics."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).parent
API_KEYS: Final = {"scheduler.api.bind_address", "scheduler.api.max_request_size"}
"""Only a real process has them: see `tests/end_to_end/test_document.py`."""
VARIABLE: Final = "MYCEL_SCHEDULER_NODES"
_BLOCK: Final = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_METRIC: Final = re.compile(r"^(hypha_\w+) [\d.]+$", re.MULTILINE)


def keys() -> dict[str, Any]:
    """Dotted keys with the values printed in the document."""
    text = (HERE / "scheduler_nodes.toml").read_text(encoding="utf-8")
    return dict(_leaves(tomllib.loads(text), ""))


def metrics() -> list[str]:
    return _METRIC.findall((HERE / "scheduler_nodes_metrics.txt").read_text(encoding="utf-8"))


def _leaves(table: dict[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def document() -> str:
    path = os.environ.get(VARIABLE)
    if not path:
        pytest.skip(f"{VARIABLE} does not say where the document is")
    return Path(path).read_text(encoding="utf-8")


def keys_of(document: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for block in _BLOCK.findall(document):
        found.update(_leaves(tomllib.loads(block), ""))
    return found


def metrics_of(document: str) -> list[str]:
    return _METRIC.findall(document)
