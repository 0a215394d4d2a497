"""Writes the little TOML that `mycel up` needs; the standard library only reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` wins, key by key."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def dumps(table: Mapping[str, Any]) -> str:
    return "\n".join(_table(table, ())) + "\n"


def _table(table: Mapping[str, Any], above: tuple[str, ...]) -> list[str]:
    lines = [
        f"{_key(name)} = {_value(value)}"
        for name, value in table.items()
        if not isinstance(value, Mapping)
    ]
    if above and lines:
        lines.insert(0, f"[{'.'.join(_key(part) for part in above)}]")
    for name, value in table.items():
        if isinstance(value, Mapping):
            below = _table(value, (*above, name))
            lines += ["", *below] if lines and below else below
    return lines


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # A JSON string is a TOML string, but for one control character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(one)}" for name, one in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    raise TypeError(f"{type(value).__name__} is not written to TOML")
