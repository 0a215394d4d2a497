"""Functions and their arguments by value: what they become before they are sent.

Everything is pickled by cloudpickle, which takes lambdas, closures, and what `__main__` and
notebooks define, by value. Arguments of which JSON says exactly the same stay JSON, so that people
can read them.
"""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any, Final

import cloudpickle
import msgspec

from .own_modules import FUNCTION_FILE, OwnModules, imported_names, with_function
from .values import NAMED, PICKLE, PICKLE_FILE, POSITIONAL

INLINE_FUNCTION_BYTES_MAX: Final = 32 << 10
"""A longer one goes with the code, once."""
INLINE_ARGUMENTS_BYTES_MAX: Final = 1 << 20
"""Longer ones go by blob."""
PYTHON_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_SMALL: Final = 1 << 63

__all__ = ["FUNCTION_FILE", "Arguments", "Call", "Pickling"]


class Call(msgspec.Struct, frozen=True):
    """A function as a task's body has it, and the code that is to be uploaded first."""

    name: str
    function: bytes
    """Pickled; empty, it is in the code."""
    code: bytes
    """A zip archive, or nothing."""


class Arguments(msgspec.Struct, frozen=True):
    """One task's arguments: JSON, or a pickle that is long enough for a blob."""

    json: bytes
    pickled: bytes = b""


class Pickling:
    """Thread-safe. Remembers the modules that it has packed."""

    def __init__(self) -> None:
        self._modules = OwnModules()

    def call(self, function: Callable[..., Any], *examples: Any) -> Call:
        """`examples` are arguments, whose classes may come from modules of one's own, too."""
        kept, noting = io.BytesIO(), set[str]()
        _Pickler(kept, noting).dump(function)
        for example in examples:
            _Pickler(io.BytesIO(), noting).dump(example)
        pickled = kept.getvalue()
        archive = self._modules.packed(noting)
        name = _name_of(function)
        if len(pickled) <= INLINE_FUNCTION_BYTES_MAX:
            return Call(name, pickled, archive)
        return Call(name, b"", with_function(archive, pickled))


def arguments(positional: tuple[Any, ...], named: Mapping[str, Any]) -> Arguments:
    if all(_is_plain(one) for one in positional) and all(map(_is_plain, named.values())):
        if not named:
            return Arguments(msgspec.json.encode(positional))
        given = {POSITIONAL: positional, NAMED: named}
        return Arguments(msgspec.json.encode(given))
    pickled = cloudpickle.dumps((positional, dict(named)))
    if len(pickled) > INLINE_ARGUMENTS_BYTES_MAX:
        return Arguments(b"", pickled)
    return Arguments(b'{"%b":"%b"}' % (PICKLE.encode(), base64.b64encode(pickled)))


def by_blob(digest: str, size: int) -> bytes:
    """Arguments whose pickle is a blob."""
    file = {"$file": digest, "path": f".values/{digest[-32:]}", "size": size}
    return msgspec.json.encode({PICKLE_FILE: file})


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Notes the modules that a pickle names, or that its functions import when they run."""

    def __init__(self, file: io.BytesIO, noting: set[str]) -> None:
        super().__init__(file)
        self._noting = noting

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType):
            self._noting.add(obj.__module__ or "")
            self._noting |= imported_names(obj.__code__)
        elif isinstance(obj, type):
            self._noting.add(obj.__module__)
        elif isinstance(obj, ModuleType):
            self._noting.add(obj.__name__)
        return super().reducer_override(obj)


def _name_of(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    text = f"{module}:{name}"
    return "".join(one if one.isprintable() else "?" for one in text)[:256]


def _is_plain(value: object) -> bool:
    """Whether JSON brings back exactly this. Exact types only."""
    kind = type(value)
    if kind is int:
        return -_SMALL <= value < _SMALL  # type: ignore[operator]
    if kind is str:
        return value.isascii()  # type: ignore[attr-defined, no-any-return]
    if kind is float:
        return value - value == 0.0  # type: ignore[operator, no-any-return]
    return value is None or kind is bool
