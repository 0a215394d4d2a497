"""Functions that the tests' tasks call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def add(left: int, right: int) -> int:
    return left + right


def where() -> dict[str, Any]:
    return {"pid": os.getpid(), "parent": os.getppid(), "environment": dict(os.environ)}


def repeat(text: str, times: int) -> str:
    return text * times


def fail(text: str) -> None:
    raise ValueError(text)


def unencodable() -> object:
    return object()


def numbered() -> dict[int, str]:
    return {1: "one"}


def not_a_number() -> float:
    return float("nan")


def talk(words: list[str], release: str) -> str:
    """Says them all, then waits for a file: the last one is said when that is there."""
    for word in words[:-1]:
        print(word, flush=True)
    while not Path(release).exists():
        time.sleep(0.01)
    print(words[-1])
    return words[-1]


def report(done: float, message: str, metrics: dict[str, float], release: str) -> None:
    """Reports again and again, until a file is there."""
    import mycel.task

    while not Path(release).exists():
        mycel.task.progress(done, message, **metrics)
        time.sleep(0.05)


def report_wrongly() -> list[str]:
    import mycel.task

    said = []
    try:
        mycel.task.progress(1.5)
    except mycel.task.TaskError as error:
        said.append(str(error))
    try:
        mycel.task.checkpoint(b"")
    except mycel.task.TaskError as error:
        said.append(str(error))
    try:
        mycel.task.checkpoint(bytes((64 << 20) + 1))
    except mycel.task.TaskError as error:
        said.append(str(error))
    return said


def checkpointed(size: int, note: str) -> int:
    """Leaves a checkpoint and waits to be killed; the next try says how long it is."""
    import mycel.task

    left = mycel.task.restore()
    if left is not None:
        return len(left)
    mycel.task.checkpoint(b"x" * size, wait=True)
    Path(note).touch()
    while True:
        time.sleep(1)


def speak() -> int:
    print("on stdout")
    print("on stderr", file=sys.stderr)
    return 7


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    sys.exit(3)


def wait(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def note(folder: str, name: str) -> None:
    """Leaves a file that tells the pid, under a name of its own for each execution."""
    Path(folder, f"{name}.{os.environ['MYCEL_ATTEMPT']}.{os.getpid()}").write_text(str(os.getpid()))


def wait_for(folder: str, name: str, gate: str) -> dict[str, Any]:
    """Tells that it runs, and ends when the gate exists."""
    note(folder, name)
    while not Path(folder, gate).exists():
        time.sleep(0.01)
    return {"pid": os.getpid(), "attempt": int(os.environ["MYCEL_ATTEMPT"]), "name": name}


def grow_a_tree(folder: str, name: str) -> None:
    """A child, which has a child; none ends by itself."""
    script = "sleep 600 & echo $! > {0}.grandchild; echo $$ > {0}.child; wait"
    place = Path(folder, name)
    subprocess.Popen(
        ["sh", "-c", script.format(place)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    note(folder, name)
    while True:
        time.sleep(60)


def leave_with_much_to_say() -> None:
    sys.exit("x" * 20_000_000)


def claim_all_memory() -> None:
    """As a task can that writes on its interpreter's socket."""
    main = sys.modules["__main__"]
    main.peak_memory = lambda: (1 << 63) - 1  # type: ignore[attr-defined]
    time.sleep(0.1)


def say_half_a_pair() -> None:
    raise ValueError("\ud800\0" * 1000)


def name_no_end() -> None:
    raise type("x" * 20_000_000, (Exception,), {})
