"""A model that is loaded in a process of its own, for as long as the worker offers it.

    started ── says "ready" ──▶ ready ──┐
       ▲  └──────── ends ───────────────┴──▶ resting ── after a while ──┐
       └────────────────────────────────────────────────────────────────┘

The process serves OpenAI's routes on a Unix socket in its working folder; to the driver it is
an endpoint like any other. When it ends, requests under way fail, and it is loaded again: at
once if it had lived for a while, after a growing pause if not.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from mycel.core.model.model_program import ServerSettings
from mycel.drivers.helper.helper_client import HelperClient
from mycel.drivers.helper.helper_lanes import describe_exit
from mycel.drivers.helper.helper_messages import ProgramEnded, StartProgram, StopProgram
from mycel.drivers.inherited_environment import inherited_environment
from mycel.drivers.python.interpreter_records import clock
from mycel.drivers.sandbox.run_confinement import RunConfinement

from .http_stream import Endpoint

SOCKET: Final = "model.sock"
PREFIX: Final = "/v1"
REST_SECONDS_MIN: Final = 0.25
REST_SECONDS_MAX: Final = 60.0
LIVED_SECONDS: Final = 30.0
"""Whoever has lived so long may be loaded again at once."""
KILLED: Final = 128 + signal.SIGKILL
_LAST_LINES: Final = 5
_PASSED_ON: Final = (
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "HF_HOME",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)
_HERE: Final = Path(__file__).parent.resolve()
_numbers = count(-1, -1)
"""Interpreters have positive ones."""


class ModelProcess:
    """`changed` is called when it has become ready, or is no longer."""

    def __init__(
        self,
        helper: HelperClient,
        root: Path,
        settings: ServerSettings,
        changed: Callable[[ModelProcess], None],
        note: Callable[..., None],
        *,
        reloads: bool = True,
        confinement: RunConfinement | None = None,
    ) -> None:
        self._helper = helper
        self._root = root
        self._settings = settings
        self._changed = changed
        self._note = note
        self._reloads = reloads
        self._confinement = confinement
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._folder = Path()
        self._started_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._life: socket.socket | None = None
        self._gone = asyncio.Event()
        self._gone.set()
        self._closing = False
        self.state: Literal["resting", "started", "ready"] = "resting"
        self.error = ""
        """Why it ended last."""
        self.endings = 0
        """In a row, without having lived for a while."""

    @property
    def settings(self) -> ServerSettings:
        return self._settings

    @property
    def endpoint(self) -> Endpoint | None:
        """Where it listens, once it is ready."""
        if self.state != "ready":
            return None
        return Endpoint(f"unix:{self._folder / SOCKET}", prefix=PREFIX)

    def start(self) -> None:
        assert self.state == "resting"
        self._timer = None
        self.state = "started"
        self._number = next(_numbers)
        self._folder = self._root / f"model{self._number}"
        self._folder.mkdir(mode=0o700)
        self._started_at = clock()
        self._gone.clear()
        self._helper.owners[self._number] = self._ended
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._life = ours
        self._loop.add_reader(ours, self._spoke)
        request = StartProgram(
            self._number, self._command(), self._environment(), str(self._folder), self._confinement
        )
        with theirs, open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is wanted
            self._helper.post_with_descriptors(request, (theirs.fileno(), nothing.fileno()))

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Ends only when its process is gone."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if not self._gone.is_set():
            self._helper.post(StopProgram(self._number, grace_seconds))
            await self._gone.wait()

    def _command(self) -> list[str]:
        program = "function_server.py" if self._settings.python else "llama_server.py"
        given: dict[str, Any] = {**msgspec.structs.asdict(self._settings), "socket": SOCKET}
        return [sys.executable, "-P", str(_HERE / program), json.dumps(given)]

    def _environment(self) -> dict[str, str]:
        environment = inherited_environment(also=_PASSED_ON)
        return {**environment, "PYTHONUNBUFFERED": "1", "MYCEL_WORKDIR": str(self._folder)}

    def _spoke(self) -> None:
        assert self._life is not None
        try:
            said = self._life.recv(64)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self._loop.remove_reader(self._life)
        if said and self.state == "started":
            self.state = "ready"
            seconds = round(clock() - self._started_at, 3)
            self._note("model_loaded", model=self._settings.name, seconds=seconds)
            self._changed(self)

    def _ended(self, ended: ProgramEnded) -> None:
        del self._helper.owners[self._number]
        if self._life is not None:
            self._loop.remove_reader(self._life)
            self._life.close()
            self._life = None
        lived = self.state == "ready" and clock() - self._started_at >= LIVED_SECONDS
        self.endings = 1 if lived else self.endings + 1
        self.error = why_ended(ended)
        self.state = "resting"
        self._gone.set()
        if self._closing:
            return
        if self._reloads:
            self._rest()
        self._changed(self)

    def _rest(self) -> None:
        seconds = min(REST_SECONDS_MIN * 2.0 ** (self.endings - 1), REST_SECONDS_MAX)
        self._note(
            "model_ended", model=self._settings.name, error=self.error, again_in_seconds=seconds
        )
        self._timer = self._loop.call_later(seconds, self.start)


def why_ended(ended: ProgramEnded) -> str:
    """How it ended, with the last that it said: that first, since a traceback ends with its
    reason, and lists cut long texts."""
    lines = [line.strip() for line in ended.output.decode(errors="replace").splitlines()]
    said = [line for line in lines if line.strip("^~ ")][-_LAST_LINES:]
    how = f"its process ended, {describe_exit(ended.exit_code)}"
    if ended.broken_limit:
        how = f"its process was killed: {ended.broken_limit}; --memory reserves more"
    elif ended.exit_code == KILLED:
        how += ": by the system, as a rule because the machine has no memory left for it"
    if not said:
        return how
    before = f" (before that: {' | '.join(said[:-1])})" if said[1:] else ""
    return f"{how}: {said[-1]}{before}"
