# ruff: noqa: PTH103, PTH106, PTH107, PTH109, PTH110, PTH116, PTH118, PTH123, S301
# pathlib would double the imports of a small program; pickles are what this is for
"""Functions that came by value: unpickled here, in the task's own process, and nowhere else.

Imported by an interpreter when the first of them comes. Besides the standard library it needs
cloudpickle, of the environment or else of the worker.
"""

from __future__ import annotations

import base64
import io
import os
import pickle
import sys

from .interpreter_calls import OWN_FOLDER, BadFunction
from .interpreter_json import Json
from .interpreter_values import (
    BUFFERS,
    FLOAT_MARK,
    PICKLE,
    PICKLE_FILE,
    POSITIONAL,
    RAISED,
    is_plain,
    unpacked,
    with_numbers,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RESULT_FILE = ".mycel-result"
FUNCTION_FILE = ".function"
"""In an archive of code: a function that is too long to stand in its job."""
INLINE_BYTES_MAX = 1 << 20
"""A longer result goes by file."""
RAISED_BYTES_MAX = 64 << 10
FUNCTIONS_MAX = 256
"""Of those that are kept unpickled."""


class PickledCalls:
    def __init__(self, folder: str, cloudpickle: str) -> None:
        self._folder = folder
        self._json = Json()
        self._functions: dict[tuple[bytes, str], Callable[..., object]] = {}
        self._new_pickler = _new_pickler(cloudpickle)

    def run(self, function: bytes, code: str, arguments: bytes, attempt: int) -> tuple[bytes, bool]:
        """The result, and whether it was left in a file instead."""
        called = self._functions.get((function, code))
        if called is None:
            called = self._unpickled_function(function, code)
        positional, named = self._arguments(arguments)
        return self._encoded(called(*positional, **named), attempt)

    def raised(self, failure: BaseException) -> bytes:
        """The exception for its caller to raise; nothing if it cannot travel."""
        kept = io.BytesIO()
        try:
            self._new_pickler(kept).dump(failure)
            pickled = kept.getvalue()
            pickle.loads(pickled)  # many an exception cannot be made again
        except BaseException:  # noqa: BLE001 - the user's classes; the text of it goes anyway
            return b""
        return b"" if len(pickled) > RAISED_BYTES_MAX else _tagged(RAISED, pickled)

    def _unpickled_function(self, function: bytes, code: str) -> Callable[..., object]:
        if code and code not in sys.path:
            sys.path.insert(1, code)
        try:
            called: Callable[..., object] = pickle.loads(function or _packed_function(code))
        except BaseException as error:
            raise BadFunction(f"the function cannot be unpickled here: {_told(error)}") from error
        if len(self._functions) >= FUNCTIONS_MAX:
            self._functions.clear()
        self._functions[function, code] = called
        return called

    def _arguments(self, encoded: bytes) -> Any:
        given: Any = self._json.decode(encoded) if encoded else []
        if _is_pickled(given):
            return _unpickled(given)
        found = unpacked(with_numbers(given) if FLOAT_MARK in encoded else given)
        if found is not None and type(given) is dict and POSITIONAL in given:
            positional, named = found
            items = {name: _unpickled_item(one) for name, one in named.items()}
            return [_unpickled_item(one) for one in positional], items
        if found is None:
            raise BadFunction(f"arguments must be a JSON list or object, not {encoded[:80]!r}")
        return found

    def _encoded(self, result: object, attempt: int) -> tuple[bytes, bool]:
        if is_plain(result):
            return self._json.encode(result), False
        kept = _Kept(os.path.join(self._folder, f"{OWN_FOLDER}{attempt}"))
        try:
            self._new_pickler(kept).dump(result)
        except Exception as error:
            kept.drop()
            raise BadFunction(f"the result cannot be pickled: {_told(error)}") from error
        if kept.close():
            return b"", True
        return _tagged(PICKLE, kept.start.getvalue()), False


def _unpickled_item(value: Any) -> Any:
    """One argument; what an earlier call returned stands here as that call's result does."""
    return _unpickled(value) if _is_pickled(value) else value


def _is_pickled(value: Any) -> bool:
    return type(value) is dict and (PICKLE in value or PICKLE_FILE in value)


def _unpickled(form: dict[str, Any]) -> Any:
    try:
        buffers = [_content(path) for path in form.get(BUFFERS, ())]
        if PICKLE in form:
            return pickle.loads(base64.b64decode(form[PICKLE]), buffers=buffers)
        with open(form[PICKLE_FILE], "rb") as file:
            return pickle.load(file, buffers=buffers)
    except BaseException as error:
        raise BadFunction(f"the arguments cannot be unpickled here: {_told(error)}") from error


def _content(path: str) -> bytearray:
    """That an array can write to, as its original could."""
    content = bytearray(os.stat(path).st_size)
    with open(path, "rb") as file:
        file.readinto(content)
    return content


class _Kept:
    """What a pickler writes: in memory, and from a certain length on in a file."""

    def __init__(self, folder: str) -> None:
        self.start = io.BytesIO()
        self._folder = folder
        self._file: io.BufferedWriter | None = None

    def write(self, data: Any) -> int:
        if self._file is not None:
            return self._file.write(data)
        size = memoryview(data).nbytes
        if self.start.tell() + size <= INLINE_BYTES_MAX:
            return self.start.write(data)
        os.makedirs(self._folder, 0o700, exist_ok=True)
        self._file = open(os.path.join(self._folder, RESULT_FILE), "wb")  # noqa: SIM115
        self._file.write(self.start.getbuffer())
        return self._file.write(data)

    def close(self) -> bool:
        """Whether there is a file."""
        if self._file is None:
            return False
        self._file.close()
        return True

    def drop(self) -> None:
        if self.close():
            os.remove(os.path.join(self._folder, RESULT_FILE))
            if os.path.realpath(self._folder) != os.getcwd():
                os.rmdir(self._folder)  # else the task has it for its files, too


def _tagged(name: str, pickled: bytes) -> bytes:
    return b'{"%b":"%b"}' % (name.encode(), base64.b64encode(pickled))


def _packed_function(code: str) -> bytes:
    import zipfile

    with zipfile.ZipFile(code) as archive:
        return archive.read(FUNCTION_FILE)


def _new_pickler(path: str) -> Callable[[Any], pickle.Pickler]:
    """cloudpickle's, from here on also for what unpickles its functions."""
    try:
        import cloudpickle
    except ImportError:
        import importlib.util

        place = os.path.join(path, "__init__.py")
        specification = importlib.util.spec_from_file_location(
            "cloudpickle", place, submodule_search_locations=[path]
        )
        if not path or not os.path.exists(place) or specification is None:
            raise BadFunction(
                "functions by value need the package cloudpickle: add it to the environment"
            ) from None
        cloudpickle = sys.modules["cloudpickle"] = importlib.util.module_from_spec(specification)
        assert specification.loader is not None
        specification.loader.exec_module(cloudpickle)
    pickler: Callable[[Any], pickle.Pickler] = cloudpickle.Pickler
    return pickler


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - a class of the user's
        return "an error that cannot be shown"
