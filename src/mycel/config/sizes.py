"""Sizes in bytes, as people write them: 16000000000, "16GB", "1.5 GiB"."""

from __future__ import annotations

import re
from typing import Final

SIZE_BYTES_MAX: Final = 1 << 62

_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{unit: 1000**power for power, unit in enumerate("kmgtpe", 1)},
    **{f"{unit}b": 1000**power for power, unit in enumerate("kmgtpe", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("kmgtpe", 1)},
    **{f"{unit}ib": 1024**power for power, unit in enumerate("kmgtpe", 1)},
}
_PATTERN: Final = re.compile(r"\s*([0-9][0-9_]*)(?:\.([0-9]+))?\s*([a-z]*)\s*", re.IGNORECASE)
_EXPECTED: Final = 'expected bytes as a whole number, or a text such as "16GB" or "512MiB"'


class BadSize(ValueError):
    """Whoever wrote the size can correct it."""


def parse_size(value: object) -> int:
    """Bytes. GB is 1000³ of them, GiB is 1024³."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadSize(f"{_EXPECTED}, got {type(value).__name__}")
    bytes_ = _parse_text(value) if isinstance(value, str) else _parse_number(value)
    if bytes_ < 0:
        raise BadSize(f"a size cannot be negative, got {value!r}")
    if bytes_ > SIZE_BYTES_MAX:
        raise BadSize(f"{value!r} is more than any machine has")
    return bytes_


def _parse_number(value: float) -> int:
    if value % 1 != 0:  # also of infinity and of no number at all
        raise BadSize(f"{_EXPECTED}, got {value!r}")
    return int(value)


def _parse_text(text: str) -> int:
    if text.strip().startswith("-"):
        raise BadSize(f"a size cannot be negative, got {text!r}")
    match = _PATTERN.fullmatch(text) if len(text) <= 40 else None
    unit = _UNITS.get(match[3].lower()) if match else None
    if match is None or unit is None:
        raise BadSize(f"{_EXPECTED}, got {text[:40]!r}")
    whole, fraction = match[1].replace("_", ""), match[2] or ""
    scale: int = 10 ** len(fraction)
    return int(whole + fraction) * unit // scale


def format_size(bytes_: int) -> str:
    """For people: the largest unit that leaves at least one before the point."""
    for power, unit in reversed(list(enumerate(("kB", "MB", "GB", "TB", "PB", "EB"), 1))):
        if bytes_ >= 1000**power:
            return f"{bytes_ / 1000**power:.1f}".removesuffix(".0") + f" {unit}"
    return f"{bytes_} B"
