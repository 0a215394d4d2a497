"""Where the keys of a TOML text are: tomllib does not say.

The text is known to be sound, so a statement is the shortest run of lines that tomllib
accepts by itself; what it then returns names the keys.
"""

from __future__ import annotations

import tomllib
from typing import Any

Path = tuple[str, ...]


def lines_of_keys(text: str) -> dict[Path, int]:
    """The line of each key, counted from 1; an array's elements are keys such as "0"."""
    found: dict[Path, int] = {}
    table: Path = ()
    arrays: dict[Path, int] = {}
    lines = text.split("\n")
    position = 0
    while position < len(lines):
        statement, length = _statement(lines, position)
        if lines[position].lstrip().startswith("["):
            table = _header(statement, found, arrays, position + 1)
        else:
            _note(statement, table, found, position + 1)
        position += length
    return found


def _statement(lines: list[str], start: int) -> tuple[dict[str, Any], int]:
    for end in range(start + 1, len(lines) + 1):
        try:
            return tomllib.loads("\n".join(lines[start:end])), end - start
        except tomllib.TOMLDecodeError:
            continue
    return {}, len(lines) - start


def _header(
    statement: dict[str, Any], found: dict[Path, int], arrays: dict[Path, int], line: int
) -> Path:
    path: Path = ()
    inside: Any = statement
    while inside:
        if isinstance(inside, list):
            place = arrays[path] = arrays.get(path, -1) + 1
            path, inside = (*path, str(place)), inside[0]
        else:
            key, inside = next(iter(inside.items()))
            path = (*path, key)
            # `[a.b]` below `[[a]]` speaks of the last element of a.
            if not isinstance(inside, list) and path in arrays:
                path = (*path, str(arrays[path]))
        found.setdefault(path, line)
    return path


def _note(value: object, path: Path, found: dict[Path, int], line: int) -> None:
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = ((str(place), child) for place, child in enumerate(value))  # type: ignore[assignment]
    else:
        return
    for key, child in children:
        found.setdefault((*path, key), line)
        _note(child, (*path, key), found, line)
