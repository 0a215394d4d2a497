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
from pickle import PickleBuffer
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import cloudpickle
import msgspec

from mycel.blobs import digests

from .own_modules import FUNCTION_FILE, OwnModules, imported_names, with_function
from .values import BUFFERS, NAMED, PICKLE, PICKLE_FILE, POSITIONAL

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
    """One task's arguments as JSON, and what is to be uploaded first."""

    json: bytes
    blobs: Mapping[str, bytes] = {}
    """By digest: long pickles, and the contents of long arrays."""
    modules: frozenset[str] = frozenset()
    """That the pickles name."""


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
    pickled = Pickled()
    form = pickled.form_of((positional, dict(named)))
    return pickled.arguments(form)


class Pickled:
    """Values of one task's arguments, pickled."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._modules: set[str] = set()

    def form_of(self, value: Any) -> dict[str, Any]:
        """As JSON. The contents of long arrays are blobs of their own: what many calls share is
        uploaded once, and a worker fetches it once."""
        kept = io.BytesIO()
        buffers: list[bytes] = []

        def stays(buffer: PickleBuffer) -> bool:
            try:
                content = buffer.raw()
            except BufferError:  # not in one piece
                return True
            if content.nbytes <= INLINE_ARGUMENTS_BYTES_MAX:
                return True
            buffers.append(bytes(content))
            return False

        Pickler(kept, self._modules, stays).dump(value)
        pickled = kept.getvalue()
        form: dict[str, Any] = {}
        if len(pickled) > INLINE_ARGUMENTS_BYTES_MAX:
            form[PICKLE_FILE] = self._file(pickled)
        else:
            form[PICKLE] = base64.b64encode(pickled).decode()
        if buffers:
            form[BUFFERS] = [self._file(content) for content in buffers]
        return form

    def arguments(self, form: Any) -> Arguments:
        return Arguments(msgspec.json.encode(form), self._blobs, frozenset(self._modules))

    def _file(self, content: bytes) -> dict[str, Any]:
        digest = digests.of_bytes(content)
        self._blobs[digest] = content
        return {"$file": digest, "path": f".values/{digest[-32:]}", "size": len(content)}


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

    def __init__(
        self,
        file: io.BytesIO,
        noting: set[str],
        stays: Callable[[PickleBuffer], bool] | None = None,
    ) -> None:
        """`stays` says of each buffer whether it is pickled with the rest."""
        super().__init__(file, buffer_callback=stays)
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
