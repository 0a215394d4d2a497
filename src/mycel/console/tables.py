"""How things look in a terminal: aligned tables, relative times, a little colour."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any, Final, NamedTuple

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

LEAST_WIDTH: Final = 10
WRAPPED_WIDTH: Final = 24


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


class Column(NamedTuple):
    """How a column yields where the terminal is too narrow for all of it."""

    heading: str
    least: int = 0
    """It is shortened to no less than this; 0: it is not."""
    leaves: int = 0
    """Where shortening is not enough, the column with the highest of these is left out; 0: none."""
    wraps: bool = False
    """What does not fit goes on in the next line; of the last column alone."""
    keeps_end: bool = False
    """It is shortened at its beginning."""


def print_table(headings: Sequence[str | Column], rows: Iterable[Sequence[str]]) -> None:
    """States in colour; the last column is not padded. On a terminal no line is longer than that is
    wide; files and pipes get everything."""
    columns = [one if isinstance(one, Column) else Column(one) for one in headings]
    if not any(one.least or one.wraps for one in columns):
        columns[-1] = columns[-1]._replace(least=LEAST_WIDTH)
    lines = [tuple(one.heading for one in columns)]
    lines += [tuple(map(_printable, row)) for row in rows]
    width = terminal_width() if sys.stdout.isatty() else None
    for number, cells in enumerate(fitted(columns, lines, width)):
        if is_colourful():
            cells = [_coloured(cell, number == 0) for cell in cells]
        write_own(sys.stdout, "  ".join(cells).rstrip() + "\n")


def terminal_width() -> int:
    return max(LEAST_WIDTH, shutil.get_terminal_size().columns)


def fitted(
    columns: Sequence[Column], lines: Sequence[tuple[str, ...]], width: int | None
) -> Iterator[list[str]]:
    """The cells of each line, padded."""
    shown = list(range(len(columns)))
    widths = _widths(columns, lines, shown, width)
    while width is not None and _needed(widths, shown) > width:
        leaving = max(shown, key=lambda place: columns[place].leaves)
        if not columns[leaving].leaves:
            break
        shown.remove(leaving)
        widths = _widths(columns, lines, shown, width)
    for line in lines:
        *cells, last = [_cell(columns[place], line[place], widths[place]) for place in shown]
        first, *more = last if isinstance(last, list) else [last]
        yield [*map(str, cells), first]
        indent = [" " * widths[place] for place in shown[:-1]]
        yield from ([*indent, one] for one in more)


def _widths(
    columns: Sequence[Column],
    lines: Sequence[tuple[str, ...]],
    shown: list[int],
    width: int | None,
) -> list[int]:
    """As wide as their cells, and as much narrower as it takes, the widest first."""
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    if width is None:
        return widths
    while (too_much := _needed(widths, shown) - width) > 0:
        yielding = [place for place in shown if widths[place] > _least(columns[place])]
        if not yielding:
            break
        widest = max(yielding, key=lambda place: widths[place])
        others = [widths[place] for place in yielding if place != widest]
        to = max([_least(columns[widest]), widths[widest] - too_much, *others])
        widths[widest] = min(to, widths[widest] - 1)
    return widths


def _least(column: Column) -> int:
    if column.wraps:
        return WRAPPED_WIDTH
    return column.least or sys.maxsize


def _needed(widths: list[int], shown: list[int]) -> int:
    return sum(widths[place] for place in shown) + 2 * (len(shown) - 1)


def _cell(column: Column, text: str, width: int) -> str | list[str]:
    if len(text) <= width:
        return text.ljust(width)
    if column.wraps:
        return wrap(text, width, break_on_hyphens=False)
    return "…" + text[1 - width :] if column.keeps_end else text[: width - 1] + "…"


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
