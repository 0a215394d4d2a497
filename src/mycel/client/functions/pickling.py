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
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
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
KNOWN_MAX: Final = 1000
"""Functions that are kept pickled."""

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
    modules: frozenset[str] = frozenset()
    """That the pickle names."""


class Pickling:
    """Thread-safe. Remembers functions that cannot change, and the modules that it has packed."""

    def __init__(self) -> None:
        self._modules = OwnModules()
        self._known: dict[object, tuple[bytes, frozenset[str]]] = {}

    def call(self, function: Callable[..., Any], given: Arguments) -> Call:
        """With the modules that it and these arguments need."""
        pickled, names = self._pickled(function)
        archive = self._modules.packed(names | given.modules if given.modules else names)
        name = _name_of(function)
        if len(pickled) <= INLINE_FUNCTION_BYTES_MAX:
            return Call(name, pickled, archive)
        return Call(name, b"", with_function(archive, pickled))

    def _pickled(self, function: Callable[..., Any]) -> tuple[bytes, frozenset[str]]:
        constant = _constant(function)
        if constant is not None and constant in self._known:
            return self._known[constant]
        kept, noting = io.BytesIO(), set[str]()
        Pickler(kept, noting).dump(function)
        made = kept.getvalue(), frozenset(noting)
        if constant is not None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[constant] = made
        return made


def arguments(positional: tuple[Any, ...], named: Mapping[str, Any]) -> Arguments:
    if all(is_plain(one) for one in positional) and all(map(is_plain, named.values())):
        if not named:
            return Arguments(msgspec.json.encode(positional))
        given = {POSITIONAL: positional, NAMED: named}
        return Arguments(msgspec.json.encode(given))
    kept, noting = io.BytesIO(), set[str]()
    Pickler(kept, noting).dump((positional, dict(named)))
    pickled, modules = kept.getvalue(), frozenset(noting)
    if len(pickled) > INLINE_ARGUMENTS_BYTES_MAX:
        return Arguments(b"", pickled, modules)
    written = b'{"%b":"%b"}' % (PICKLE.encode(), base64.b64encode(pickled))
    return Arguments(written, modules=modules)


def by_blob(digest: str, size: int) -> bytes:
    """Arguments whose pickle is a blob."""
    file = {"$file": digest, "path": f".values/{digest[-32:]}", "size": size}
    return msgspec.json.encode({PICKLE_FILE: file})


def _constant(function: Callable[..., Any]) -> object:
    """What stands for a function whose pickle cannot change; None if it can, through a closure,
    a default or a global variable."""
    if not isinstance(function, FunctionType) or function.__dict__ or function.__closure__:
        return None
    if function.__defaults__ or function.__kwdefaults__:
        return None
    space = function.__globals__
    for name in _global_names(function.__code__):
        if name in space and not isinstance(space[name], ModuleType):
            return None
    return function.__code__, function.__module__, function.__qualname__, id(space)


@lru_cache(4096)
def _global_names(code: CodeType) -> frozenset[str]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(code.co_names).union(*map(_global_names, inner))


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
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


def is_plain(value: object) -> bool:
    """Whether JSON brings back exactly this. Exact types only."""
    kind = type(value)
    if kind is int:
        return -_SMALL <= value < _SMALL  # type: ignore[operator]
    if kind is str:
        return value.isascii()  # type: ignore[attr-defined, no-any-return]
    if kind is float:
        return value - value == 0.0  # type: ignore[operator, no-any-return]
    return value is None or kind is bool
