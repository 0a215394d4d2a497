"""Records which functions of Mycel a process calls; `scripts/trace-task` puts it on the path.

Python imports a module of this name at its start. `scripts/trace-task` copies this one into a
folder of its own and puts that folder on PYTHONPATH, which workers hand on to the interpreters
of tasks. `MYCEL_TRACE` names the folder to others than those interpreters, which inherit
PYTHONPATH and little else: so the folder is where this file is.

The first byte of the file `number` says which task is being traced, 0 for none. Each call adds a
line to `calls`: time, number, pid, process, file, function.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType

FOLDER = Path(__file__).parent
ANONYMOUS = ("<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
"""Parts of the function around them."""
ROLES = ("gateway", "scheduler", "worker")


def process_name(words: list[str]) -> str:
    """After the command line that has started it."""
    if any(word.endswith("/interpreter.py") for word in words):
        return "interpreter"
    return next((word for word in words if word in ROLES), "client")


def start(root: str) -> None:
    """Records from now on, in this thread and in those it starts, calls of files below `root`."""
    with (FOLDER / "number").open("r+b") as file:
        number = mmap.mmap(file.fileno(), 1)
    calls = os.open(FOLDER / "calls", os.O_WRONLY | os.O_APPEND)
    own, name = os.getpid(), process_name(sys.orig_argv)

    def record(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not number[0]:
            return
        code = frame.f_code
        if not code.co_filename.startswith(root) or code.co_name in ANONYMOUS:
            return
        pid = os.getpid()
        process = name if pid == own else "helper"
        function = code.co_qualname.replace("<locals>.", "")
        line = f"{time.monotonic_ns()} {number[0]} {pid} {process} {code.co_filename} {function}\n"
        os.write(calls, line.encode())

    threading.setprofile(record)
    sys.setprofile(record)


def _begin() -> None:
    root = FOLDER / "root"
    if root.exists():
        start(root.read_text(encoding="utf-8"))


_begin()
