"""Arguments and values as they travel: JSON, and what JSON has no words for.

`mycel.drivers.python.interpreter_values` is the other end, and has the table of all forms.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

FLOAT: Final = "$float"
POSITIONAL: Final = "$positional"
NAMED: Final = "$named"
PICKLE: Final = "$pickle"
PICKLE_FILE: Final = "$pickle_file"
BUFFERS: Final = "$buffers"
RAISED: Final = "$raised"
MARK: Final = b'"$'
"""Where it is missing, there is none of these forms."""
_NUMBERS: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_SCALARS: Final = frozenset({bool, int, float, str, type(None)})

Read = Callable[[str], bytes]
"""Gets a blob by its digest."""


class NotJson(TypeError):
    """JSON would change the value, or has no way to write it."""

    def __init__(self, path: str, value: object, hint: str = "") -> None:
        kind = type(value).__name__
        super().__init__(
            f"{path} is of type {kind}, which JSON would change{hint}: submit the function itself "
            "instead of its name, and any value goes as it is"
        )


class Pickled(dict[str, Any]):
    """A value that somebody pickled, as JSON shows it. Unpickling runs code of whoever made it."""

    read: Read | None = None

    def load(self) -> Any:
        """The value. Only where you trust whoever submitted the task, and its workers."""
        return pickle.loads(self.data())  # noqa: S301 - the caller asked for it

    def data(self) -> bytes:
        if PICKLE_FILE not in self:
            return base64.b64decode(self.get(PICKLE) or self[RAISED])
        assert self.read is not None
        return self.read(self[PICKLE_FILE]["$file"])

    def __repr__(self) -> str:
        return "<a pickled value: .load() unpickles it>"


def json_value(value: Any, path: str) -> Any:
    """The same, with numbers that JSON lacks in words. Raises `NotJson` where it would change."""
    if type(value) in _SCALARS:
        return value if type(value) is not float or isfinite(value) else {FLOAT: _word(value)}
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise NotJson(f"the key {name!r} of {path}", name, " into text")
        return {name: json_value(one, f"{path}.{name}") for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(one, f"{path}[{place}]") for place, one in enumerate(value)]
    if isinstance(value, float):
        return json_value(float(value), path)
    raise NotJson(path, value)


def json_arguments(given: Any, path: str = "$.arguments") -> Any:
    """One task's arguments: a list is positional ones, a dict named ones, and anything else the
    only one."""
    if type(given) in _SCALARS:
        given = [given]
    elif not isinstance(given, list | tuple | Mapping):
        raise NotJson(path, given)
    if isinstance(given, list | tuple) and all(
        type(one) in _SCALARS and type(one) is not float for one in given
    ):
        return given
    return json_value(given, path)


def both(positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Arguments of both kinds, as JSON."""
    if not named:
        return json_arguments(positional)
    if not positional:
        return json_arguments(named)
    return {
        POSITIONAL: json_value(positional, "$.arguments"),
        NAMED: json_value(named, "$.arguments"),
    }


def received(value: Any, read: Read | None = None) -> Any:
    """A value of an answer, with numbers as numbers. Nothing is unpickled."""
    if type(value) is list:
        return [received(one, read) for one in value]
    if type(value) is dict:
        if len(value) == 1:
            [(name, one)] = value.items()
            if name == FLOAT and isinstance(one, str) and one in _NUMBERS:
                return _NUMBERS[one]
            if name in (PICKLE, PICKLE_FILE, RAISED):
                found = Pickled(value)
                found.read = read
                return found
        return {name: received(one, read) for name, one in value.items()}
    return value


def as_sent(value: Any) -> Any:
    """A received value as its answer had it, for whoever writes JSON."""
    if isinstance(value, float) and not isfinite(value):
        return {FLOAT: _word(value)}
    if isinstance(value, list):
        return [as_sent(one) for one in value]
    if type(value) is dict:
        return {name: as_sent(one) for name, one in value.items()}
    return value


def _word(value: float) -> str:
    return "nan" if value != value else str(value)
