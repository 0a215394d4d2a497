"""For the code of a task: say how far it is, and leave what a later try can go on from.

    import mycel.task

    state = mycel.task.restore()                     # None on the first try
    for epoch in range(first, 100):
        ...
        mycel.task.progress(epoch / 100, loss=loss)
        mycel.task.checkpoint("model.pt")            # or bytes

Outside of a task all of it does nothing. It speaks HTTP over the Unix socket that
`MYCEL_SOCKET` names, as any other language can: `docs/guides/progress.md` has the interface.
Called, as in `@mycel.task(cores=2)`, the module makes a function that can be submitted say what it
needs; that is for those who submit, and needs the rest of this package.
Where a task may connect to nothing, that names an open descriptor (`fd:7`): the task makes a pair
of sockets and sends one of them there.
The standard library only, so that any environment can import it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import types
from pathlib import Path

__all__ = ["TaskError", "checkpoint", "progress", "restore"]

ANSWER_SECONDS = 600.0
CHANNEL = "fd:"


class TaskError(Exception):
    """The worker refused what the task said; the message says why."""


def progress(done: float | None = None, message: str = "", **metrics: float) -> None:
    """How far the task is, from 0 to 1, with a line for people and any numbers by name. Each
    report replaces the one before; clients hear of it twice a second at the most."""
    report: dict[str, object] = {"metrics": metrics} if metrics else {}
    if done is not None:
        report["progress"] = done
    if message:
        report["message"] = message
    _ask("POST", "/progress", json.dumps(report).encode())


def checkpoint(data: bytes | str | os.PathLike[str], *, wait: bool = False) -> None:
    """Keeps these bytes, or this file, for the next try of this task; the latest one counts.
    Returns when the worker has it; with `wait`, when it is safe with the scheduler."""
    raw = data if isinstance(data, bytes) else Path(data).read_bytes()
    _ask("PUT", "/checkpoint?wait" if wait else "/checkpoint", raw)


def restore() -> bytes | None:
    """The last checkpoint of this task, by whichever try and worker it was left."""
    return _ask("GET", "/checkpoint", b"")


def _ask(method: str, target: str, body: bytes) -> bytes | None:
    path = os.environ.get("MYCEL_SOCKET")
    if not path:
        return None
    with _connected(path) as connection:
        connection.settimeout(ANSWER_SECONDS)
        head = f"{method} {target} HTTP/1.1\r\nHost: task\r\nContent-Length: {len(body)}\r\n\r\n"
        with contextlib.suppress(BrokenPipeError):
            # Refused before all of it was sent: the answer says why.
            connection.sendall(head.encode() + body)
        with connection.makefile("rb") as answer:
            status = int(answer.readline().split()[1])
            length = 0
            while line := answer.readline().strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            content = answer.read(length)
    if status == 404:
        return None
    if status >= 400:
        raise TaskError(json.loads(content)["detail"])
    return content


def _connected(path: str) -> socket.socket:
    if not path.startswith(CHANNEL):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        return connection
    ours, theirs = socket.socketpair()
    try:
        with theirs, socket.socket(fileno=os.dup(int(path.removeprefix(CHANNEL)))) as channel:
            socket.send_fds(channel, [b"\0"], [theirs.fileno()])
    except OSError as error:
        ours.close()
        raise TaskError(
            f"this process has not inherited {path}, by which its task reports: report from the "
            f"task's first process, or start others with close_fds=False ({error})"
        ) from error
    return ours


class _Callable(types.ModuleType):
    def __call__(self, *args: object, **options: object) -> object:
        # By name: this module imports nothing of the rest of the package.
        import importlib

        return importlib.import_module("mycel.client.functions.options").task(*args, **options)


sys.modules[__name__].__class__ = _Callable
