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

_NAME: Final = r"[A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\])*"
_REFERENCE: Final = re.compile(rf"(\$?)\$\{{({_NAME})\}}")
_BRACES: Final = re.compile(rf"(\$?)\$\{{({_NAME})\}}|\{{([^{{}}]+)\}}")
_STEP: Final = re.compile(r"[\w-]+")

Values = Mapping[str, Any]


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


def fill_text(text: str, values: Values) -> str:
    """In one pass: a value that looks like a reference is not filled again."""
    return _fill(_REFERENCE, text, values) if "${" in text else text


def fill_word(text: str, values: Values) -> str:
    """The same for a word of a command, where `{name}` will do as well."""
    return _fill(_BRACES, text, values) if "{" in text else text


def _fill(pattern: re.Pattern[str], text: str, values: Values) -> str:
    def filled(match: re.Match[str]) -> str:
        escaped, path, *name = match.groups()
        found = values.get(name[0], _MISSING) if path is None else _look_up(path, values)
        if found is _MISSING:
            return match[0]
        return match[0][1:] if escaped else text_of(found)

    return pattern.sub(filled, text)


def fill_value(value: Any, values: Values) -> Any:
    if isinstance(value, str):
        whole = _REFERENCE.fullmatch(value)
        if whole is not None and not whole[1]:
            found = _look_up(whole[2], values)
            return value if found is _MISSING else found
        return fill_text(value, values)
    if isinstance(value, list):
        return [fill_value(one, values) for one in value]
    if isinstance(value, dict):
        return {name: fill_value(one, values) for name, one in value.items()}
    return value


def _look_up(path: str, values: Values) -> Any:
    found: Any = values
    for step in _STEP.findall(path):
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return _MISSING
    return found
