"""What a client sends, as JSON.

JSON has no NaN and no infinity. The encoder writes null for them, and a task would be given None,
or a requirement would seem not to have been named: they are refused instead.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode
_NESTING: Final = (float, dict, list, tuple)


def encode(value: Any) -> bytes:
    encoded = _encode(value)
    if b"null" in encoded:  # else there is none; looking takes longer than encoding
        found = not_finite(value)
        if found is not None:
            raise ValueError(complaint(found))
    return encoded


def not_finite(value: object) -> str | None:
    """Where in it there is a number that JSON does not have, such as `$.arguments[0]`."""
    waiting: list[tuple[str, object]] = [("$", value)]
    while waiting:
        path, one = waiting.pop()
        if isinstance(one, float):
            if not isfinite(one):
                return path
        elif isinstance(one, dict):
            waiting += [(f"{path}.{k}", v) for k, v in one.items() if isinstance(v, _NESTING)]
        elif isinstance(one, list | tuple):
            waiting += [(f"{path}[{n}]", v) for n, v in enumerate(one) if isinstance(v, _NESTING)]
    return None


def complaint(path: str) -> str:
    return f"{path} is NaN or infinite, and JSON has no such number: send it as a text"
