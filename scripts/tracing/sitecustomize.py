"""Records which functions of Mycel a process calls; `scripts/trace-task` puts it on the path.

Python imports a module of this name at its start. `scripts/trace-task` copies this one into a
folder of its own and puts that folder on PYTHONPATH, which workers hand on to the interpreters
of tasks. They inherit little else, so the folder to write to is the one that this file is in.

The first byte of the file `number` says which task is being traced, 0 for none. Each call adds a
line to `calls`: time, number, "call", process, file, function. Where something is handed on, each
function that is under way adds one with "way" in place of "call".
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType

FOLDER = Path(__file__).parent
ANONYMOUS = ("<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
"""Parts of the function around them."""
EFFECTS = ("emit", "record", "reply", "send")
"""By these the machines of the core give effects and journal entries."""
C_HAND_OVERS = {
    ("socket", "send"),
    ("socket", "sendall"),
    ("socket", "sendmsg"),
    ("Stream", "write"),
    ("SimpleQueue", "put"),
}
"""Type and method: of sockets, of the swarm's streams, of queues between threads."""
ROLES = ("gateway", "scheduler", "worker")


def process_name(words: list[str]) -> str:
    """After the command line that has started it."""
    if any(word.endswith("/interpreter.py") for word in words):
        return "interpreter"
    return next((word for word in words if word in ROLES), "client")


def is_hand_over(frame: FrameType, event: str, called: object) -> bool:
    """Whether this call hands something on: to another process, another thread, a later turn of
    the loop, or from a machine of the core, which returns effects, to whoever performs them."""
    if event == "c_call":
        name, owner = getattr(called, "__name__", ""), getattr(called, "__self__", None)
        return (type(owner).__name__, name) in C_HAND_OVERS or called is os.write
    code = frame.f_code
    if code.co_name in EFFECTS:
        return "/mycel/core/" in code.co_filename
    return code.co_name == "call_soon" and "/asyncio/" in code.co_filename


def start(root: str) -> None:
    """Records from now on, in this thread and in those it starts, calls of files below `root`."""
    with (FOLDER / "number").open("r+b") as file:
        number = mmap.mmap(file.fileno(), 1)
    calls = os.open(FOLDER / "calls", os.O_WRONLY | os.O_APPEND)
    own, name = os.getpid(), process_name(sys.orig_argv)

    def write(kind: str, code: CodeType) -> None:
        if not code.co_filename.startswith(root) or code.co_name in ANONYMOUS:
            return
        process = name if os.getpid() == own else "helper"
        function = code.co_qualname.replace("<locals>.", "")
        words = (time.monotonic_ns(), number[0], kind, process, code.co_filename, function)
        os.write(calls, (" ".join(map(str, words)) + "\n").encode())

    def record(frame: FrameType, event: str, called: object) -> None:
        if not number[0] or event not in ("call", "c_call"):
            return
        if event == "call":
            write("call", frame.f_code)
        if is_hand_over(frame, event, called):
            above: FrameType | None = frame
            while above is not None:
                write("way", above.f_code)
                above = above.f_back

    # The code falls back to asyncio's loop, into which, unlike uvloop's, a profiler sees.
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    threading.setprofile(record)
    sys.setprofile(record)


def _begin() -> None:
    root = FOLDER / "root"
    if root.exists():
        start(root.read_text(encoding="utf-8"))


_begin()
