"""How things look in a terminal: aligned tables, relative times, a little colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from .terminal import clean, escaped_json, write_own

_COLOURS: Final = {
    "succeeded": "32",
    "healthy": "32",
    "running": "36",
    "leased": "36",
    "failed": "31",
    "dead": "31",
    "suspect": "33",
    "away": "33",
    "expected": "33",
    "cancelled": "90",
    "queued": "33",
}


def is_colourful() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def print_json(value: Any) -> None:
    """Indented for people, one line for programs."""
    encoded = msgspec.json.encode(value)
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    print(escaped_json(encoded.decode()))


def print_json_line(value: Any) -> None:
    """One of many, as it comes."""
    print(escaped_json(msgspec.json.encode(value).decode()), flush=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """States in colour; the last column is not padded."""
    lines = [tuple(headings), *(tuple(map(_printable, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    colourful = is_colourful()
    for number, line in enumerate(lines):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        if colourful:
            cells = [_coloured(cell, number == 0) for cell in cells]
        write_own(sys.stdout, "  ".join(cells).rstrip() + "\n")


def _printable(cell: str) -> str:
    """A cell is one line."""
    return clean(cell).replace("\n", "?").replace("\t", "?")


def _coloured(cell: str, heading: bool) -> str:
    code = "1" if heading else _COLOURS.get(cell.strip(), "")
    return f"\033[{code}m{cell}\033[0m" if code else cell


def parse_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def age(text: str | None) -> str:
    """How long ago, in one unit."""
    if text is None:
        return ""
    return f"{duration(datetime.now(UTC).timestamp() - parse_time(text))} ago"


def elapsed(start: str | None, end: str | None) -> str:
    if start is None:
        return ""
    until = datetime.now(UTC).timestamp() if end is None else parse_time(end)
    return duration(until - parse_time(start))


def duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, unit, name in ((100, 1, "s"), (6000, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


def size(bytes_: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if bytes_ < 1000 or unit == "TB":
            return f"{bytes_:.0f} {unit}" if bytes_ >= 10 or unit == "B" else f"{bytes_:.1f} {unit}"
        bytes_ /= 1000
    raise AssertionError("the last unit takes everything")


def shorten(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
