"""`${name}` in a job's texts, and the values that take its place.

A name is a path: `${lr}`, `${model.size}`, `${needs.prepare[0]}`. Within a text a value stands
as it is if it is text, and as JSON otherwise; a text that is nothing but one name becomes the
value itself, so that numbers stay numbers. A name that nobody has given is left alone, because
it may be the shell's; `$${name}` is `${name}`, whatever has been given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from mycel.core.errors import TooLong

_NAME: Final = r"[A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\])*"
_REFERENCE: Final = re.compile(rf"(\$?)\$\{{({_NAME})\}}")
_BRACES: Final = re.compile(rf"(\$?)\$\{{({_NAME})\}}|\{{([^{{}}]+)\}}")
_STEP: Final = re.compile(r"[\w-]+")
_INDEX: Final = re.compile(r"[0-9]{1,9}")
"""Not `str.isdigit`, which also holds for what `int` does not take, such as "²"."""

FILLED_CHARACTERS_MAX: Final = 8 << 20
"""All values together that take a name's place in one task: a few bytes that mention a long value
a million times would take all memory that there is."""

Values = Mapping[str, Any]


class Budget:
    """How much may still come of the texts of one task."""

    def __init__(self) -> None:
        self._left = FILLED_CHARACTERS_MAX

    def take(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise TooLong(
                f"the values that fill its texts are more than {FILLED_CHARACTERS_MAX >> 20} "
                "million characters together"
            )
        return text


class _Missing:
    """Nobody has given it."""


_MISSING: Final = _Missing()


def text_of(value: object) -> str:
    """How a value stands within a text."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def references(text: str) -> Iterator[str]:
    """The paths that a text mentions."""
    for match in _REFERENCE.finditer(text):
        if not match[1]:
            yield match[2]


def references_in(value: object) -> Iterator[str]:
    """The same of every text in a JSON value."""
    if isinstance(value, str):
        yield from references(value)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from references_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from references_in(one)


def head_of(path: str) -> str:
    """The name that a path begins with."""
    return path.replace("[", ".").partition(".")[0]


def fill_text(text: str, values: Values, budget: Budget) -> str:
    """In one pass: a value that looks like a reference is not filled again. Raises `TooLong`, as
    the others do."""
    return _fill(_REFERENCE, text, values, budget) if "${" in text else text


def fill_word(text: str, values: Values, budget: Budget) -> str:
    """The same for a word of a command, where `{name}` will do as well."""
    return _fill(_BRACES, text, values, budget) if "{" in text else text


def _fill(pattern: re.Pattern[str], text: str, values: Values, budget: Budget) -> str:
    def filled(match: re.Match[str]) -> str:
        escaped, path, *name = match.groups()
        found = values.get(name[0], _MISSING) if path is None else _look_up(path, values)
        if found is _MISSING:
            return match[0]
        return match[0][1:] if escaped else budget.take(text_of(found))

    return pattern.sub(filled, text)


def fill_value(value: Any, values: Values, budget: Budget) -> Any:
    if isinstance(value, str):
        whole = _REFERENCE.fullmatch(value)
        if whole is not None and not whole[1]:
            found = _look_up(whole[2], values)
            if found is _MISSING:
                return value
            budget.take(text_of(found))
            return found
        return fill_text(value, values, budget)
    if isinstance(value, list):
        return [fill_value(one, values, budget) for one in value]
    if isinstance(value, dict):
        return {name: fill_value(one, values, budget) for name, one in value.items()}
    return value


def _look_up(path: str, values: Values) -> Any:
    found: Any = values
    for step in _STEP.findall(path):
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list) and (index := index_of(step)) is not None:
            if index >= len(found):
                return _MISSING
            found = found[index]
        else:
            return _MISSING
    return found


def index_of(step: str) -> int | None:
    return int(step) if _INDEX.fullmatch(step) else None
