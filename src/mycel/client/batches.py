"""Argument sets, cut into batches that a scheduler takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

BATCH_TASKS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 4_000_000
"""Below `max_request_size`, also when that was lowered to half of its default."""

_encode: Final = msgspec.json.Encoder().encode


def batches(arguments: Iterable[Any]) -> Iterator[bytes]:
    """JSON arrays. A list or tuple is positional arguments, a dict is named ones, and
    anything else the only argument."""
    items: list[bytes] = []
    size = 0
    for one in arguments:
        item = _encode(one if isinstance(one, list | tuple | dict) else [one])
        if items and (len(items) == BATCH_TASKS_MAX or size + len(item) > BATCH_BYTES_MAX):
            yield b"[" + b",".join(items) + b"]"
            items, size = [], 0
        items.append(item)
        size += len(item) + 1
    if items:
        yield b"[" + b",".join(items) + b"]"
