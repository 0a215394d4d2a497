"""What JSON has no words for, as arguments and results carry it.

| written                                   | is                                              |
|-------------------------------------------|-------------------------------------------------|
| `{"$float": "nan"}`, `"inf"`, `"-inf"`    | that number                                     |
| `{"$positional": […], "$named": {…}}`     | arguments of both kinds                         |
| `{"$pickle": "…"}`                        | a pickled value, in base64                      |
| `{"$pickle_file": {"$file": digest, …}}`  | a pickled value in a file, since it is long     |
| `"$buffers": [{"$file": digest, …}, …]`   | beside one of these two: what it shares       |
| `{"$raised": "…"}`                        | the exception that ended a call, pickled        |

`mycel.client.values` is the other end. The interpreter imports this: the standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FLOAT, POSITIONAL, NAMED = "$float", "$positional", "$named"
PICKLE, PICKLE_FILE, RAISED = "$pickle", "$pickle_file", "$raised"
BUFFERS = "$buffers"
FLOAT_MARK = b'"$float"'
NUMBERS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_CONTAINERS = (list, tuple, dict)


class NotJson(TypeError):
    """JSON would change the value."""


def with_numbers(value: object) -> object:
    """A decoded value, with the numbers that are written as text."""
    if type(value) is list:
        return [with_numbers(one) for one in value]
    if type(value) is dict:
        if len(value) == 1:
            word = value.get(FLOAT)
            if type(word) is str and word in NUMBERS:
                return NUMBERS[word]
        return {name: with_numbers(one) for name, one in value.items()}
    return value


def without_numbers(value: object) -> object:
    """The same the other way round."""
    if isinstance(value, float) and (value != value or value in (NUMBERS["inf"], NUMBERS["-inf"])):
        return {FLOAT: "nan" if value != value else str(float(value))}
    if isinstance(value, list | tuple):
        return [without_numbers(one) for one in value]
    if isinstance(value, dict):
        return {name: without_numbers(one) for name, one in value.items()}
    return value


def check_keys(value: object) -> None:
    """Names that are no text would come back as text."""
    waiting, seen = [value], {id(value)}
    while waiting:
        one: Any = waiting.pop()
        if isinstance(one, dict):
            for name in one:
                if not isinstance(name, str):
                    raise NotJson(f"the key {name!r} is no text, and JSON would make it one")
            one = one.values()
        for inner in one:
            if isinstance(inner, _CONTAINERS) and id(inner) not in seen:
                seen.add(id(inner))
                waiting.append(inner)


def unpacked(given: object) -> tuple[list[object], dict[str, object]] | None:
    """Positional and named arguments; None if these are none."""
    if type(given) is list:
        return given, {}
    if type(given) is dict:
        if given.keys() == {POSITIONAL, NAMED}:
            return given[POSITIONAL], given[NAMED]
        return [], given
    return None


def is_plain(value: object) -> bool:
    """Whether JSON brings back exactly this, to whomever. Exact types only: what is derived from
    them would come back as its base."""
    kind = type(value)
    if kind is int:
        return -(1 << 63) <= value < 1 << 63  # type: ignore[operator]
    if kind is str:
        return value.isascii() or _is_unicode(value)  # type: ignore[attr-defined, arg-type]
    if kind is float:
        return value - value == 0.0  # type: ignore[operator, no-any-return]
    return value is None or kind is bool


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
