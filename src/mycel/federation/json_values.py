"""JSON from elsewhere: read once, with limits, and without what readers would understand
differently (a key that stands twice, NaN, half a character)."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, Final

from mycel.core.federation.errors import GraphError

VALUES_MAX: Final = 16_000_000
"""About a gigabyte of Python objects. A node of a hundred vertices has some 2,000 values."""


def read_json(data: bytes, place: str) -> Any:
    """Raises GraphError."""
    if data.count(b",") + data.count(b"{") + data.count(b"[") > VALUES_MAX:
        raise GraphError(place, f"has more than {VALUES_MAX} values")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = sorted(key for key, _ in pairs)
            twice = next(key for key, following in pairwise(keys) if key == following)
            raise GraphError(place, f"the key {twice!r} is there twice in one mapping")
        return found

    def constant(name: str) -> Any:
        raise GraphError(place, f"{name} is no number of JSON")

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise GraphError(place, f"is not UTF-8: byte {error.start} cannot be") from None
    except (ValueError, RecursionError) as error:
        raise GraphError(place, f"this is not JSON: {error}") from None
