"""What a task that says nothing is doing: nobody looks at a silent terminal for long."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Final

from mycel.client import Client
from mycel.client.errors import ClientError

from .screen import Screen

SILENCE_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 30.0
"""Without a terminal, a line that says the same again comes no sooner."""


class TaskStatus:
    """While it is open, it says why the task waits, or where it runs: in the last line of a
    terminal, else in a line whenever that changes."""

    def __init__(self, client: Client, task_id: str, screen: Screen) -> None:
        self._client = client
        self._task_id = task_id
        self._screen = screen
        self._over = threading.Event()
        self._began_at = time.monotonic()
        self._told = ""
        self._told_at = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TaskStatus:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._screen.clear()

    def heard(self) -> None:
        """The task has said something itself."""
        self._began_at = time.monotonic()
        self._screen.clear()

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if time.monotonic() - self._began_at < SILENCE_SECONDS - LOOK_SECONDS / 2:
                continue
            # A scheduler that is away is told by whoever waits for the task.
            with contextlib.suppress(ClientError):
                self._say(self._client.explain(self._task_id).summary)

    def _say(self, text: str) -> None:
        if self._over.is_set():
            return
        if self._screen.is_live:
            seconds = time.monotonic() - self._began_at
            self._screen.show(f"{self._task_id}: {text} ({seconds:.0f} s)")
            return
        now, kind = time.monotonic(), text.rstrip("0123456789. s")
        if kind != self._told and (not self._told or now - self._told_at > AGAIN_SECONDS):
            self._told, self._told_at = kind, now
            self._screen.note(f"{self._task_id}: {text}")
