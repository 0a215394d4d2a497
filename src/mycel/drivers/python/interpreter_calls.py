# ruff: noqa: PTH103, PTH108, PTH116, PTH118, PTH120
# pathlib would double the imports of a small program
"""What surrounds a call in an interpreter: its function, its folder, its error as text.

The interpreter imports this: the standard library only, and the rest of it only when needed.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ERROR_CHARACTERS_MAX = 16 << 10
SETTLED_NANOSECONDS = 100_000_000
"""Coarser than any file system's clock: a folder whose last change is older than this shows
each later change in its time stamp."""
OWN_FOLDER = ".task-"
"""How the folders of tasks begin that have one of their own."""

_OUR_FILES = tuple(
    os.path.join(os.path.dirname(__file__), name)
    for name in ("interpreter.py", "interpreter_calls.py", "pickled_calls.py")
)


class WorkingFolder:
    """The working folder: emptied between two tasks, at the price of one `stat` if it is not
    needed, because a no-op shall not pay for a folder.

    A task with files has a folder of its own in it, which the worker puts there before the call
    and takes away after it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._settled: tuple[int, int] | None = None
        self._own = ""
        os.chdir(path)

    def enter(self, name: str) -> None:
        self._own = os.path.join(self.path, name)
        os.chdir(self._own)
        os.environ["MYCEL_WORKDIR"] = sys.path[0] = self._own

    def _leave(self) -> None:
        """What was imported from there is the task's alone: the next one has its own."""
        inside, self._own = self._own + os.sep, ""
        os.environ["MYCEL_WORKDIR"] = sys.path[0] = self.path
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(inside):
                del sys.modules[name]
        os.chdir(self.path)

    def tidy(self) -> None:
        if self._own:
            self._leave()
        status = os.stat(".")
        if (status.st_ino, status.st_ctime_ns) != self._settled:
            self._clean()

    def _clean(self) -> None:
        os.makedirs(self.path, exist_ok=True)
        os.chdir(self.path)
        with os.scandir(".") as entries:
            for entry in entries:
                if not entry.name.startswith(OWN_FOLDER):
                    _remove(entry)
        status = os.stat(".")
        settled = time.time_ns() - status.st_ctime_ns > SETTLED_NANOSECONDS
        self._settled = (status.st_ino, status.st_ctime_ns) if settled else None


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        import shutil

        shutil.rmtree(entry.path, ignore_errors=True)
        return
    try:  # noqa: SIM105 - contextlib is one import more
        os.unlink(entry.path)
    except OSError:
        pass  # as with trees: what the user made unremovable goes with the interpreter


class BadFunction(Exception):
    """The task names no function that can be called; the message is for the user."""


def resolve(name: str) -> Callable[..., object]:
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise BadFunction(f"{name!r} does not name a function: write 'module:function'")
    import importlib

    try:
        target: object = importlib.import_module(module_name)
    except ImportError as error:
        places = os.pathsep.join(sys.path)
        reason = f"{type(error).__name__}: {error}"
        raise BadFunction(f"cannot import {module_name!r} from {places}: {reason}") from error
    for part in path.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            raise BadFunction(f"module {module_name!r} has no function {path!r}") from None
    if not callable(target):
        raise BadFunction(f"{name!r} is not a function but of type {type(target).__name__!r}")
    return target


def describe(error: BaseException) -> str:
    """The error in one line, then the traceback without our own frames. The user's own classes
    have a say in it, and may do anything."""
    try:
        return cut(_described(error))
    except BaseException as second:  # noqa: BLE001 - an exit, too, is the task's and not ours
        return f"{_class_of(error)}, and {_class_of(second)} while describing it"


def describe_exit(name: str, end: SystemExit) -> tuple[int, str]:
    """The exit code, and what was given to `sys.exit`."""
    try:
        code = end.code
        number = int.__and__(code, 0xFF) if isinstance(code, int) else int(code is not None)
        given = repr(code)
        if type(given) is not str:  # a class of the user's, with methods of its own
            given = str.__str__(given)
    except BaseException as second:  # noqa: BLE001 - as above
        return 1, cut(f"SystemExit: {name!r} called sys.exit, and {_class_of(second)} of it")
    return number, cut(f"SystemExit: {name!r} called sys.exit({cut(given)})")


def cut(text: str) -> str:
    """Its head and its tail: the worker takes no more of it."""
    half = ERROR_CHARACTERS_MAX // 2
    if len(text) <= ERROR_CHARACTERS_MAX:
        return text
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... {left_out} characters are left out ...\n{text[-half:]}"


def _class_of(error: BaseException) -> str:
    return str(type.__dict__["__name__"].__get__(type(error)))[:200]


def _described(error: BaseException) -> str:
    if isinstance(error, BadFunction) and error.__cause__ is None:
        return str(error)
    import traceback

    shown = error.__cause__ if isinstance(error, BadFunction) and error.__cause__ else error
    first = str(error) if isinstance(error, BadFunction) else _one_line(error)
    frame = shown.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename in _OUR_FILES:
        frame = frame.tb_next
    if frame is None:
        return first
    text = "".join(traceback.TracebackException(type(shown), shown, frame).format())
    return f"{first[: ERROR_CHARACTERS_MAX // 4]}\n{text}"


def _one_line(error: BaseException) -> str:
    import traceback

    return traceback.format_exception_only(error)[-1].strip().split("\n", 1)[0]
