"""Warm interpreters: started when none fits, kept for a while when none is needed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from mycel.drivers.helper.helper_client import HelperClient
from mycel.drivers.helper.helper_messages import (
    INTERPRETER_MEMORY,
    INTERPRETER_SOCKET,
    StartProgram,
    StopProgram,
)
from mycel.drivers.interface import LONG_SECONDS, OUTPUT_BYTES_MAX, VALUE_BYTES_MAX
from mycel.drivers.report_server import SOCKET_VARIABLE, ReportServer

from .interpreter_link import InterpreterEvents, InterpreterKey, InterpreterLink
from .interpreter_records import clock

_PROGRAM: Final = str(Path(__file__).with_name("interpreter.py").resolve())
_found = importlib.util.find_spec("cloudpickle")
_CLOUDPICKLE: Final = str(Path(_found.origin).parent) if _found and _found.origin else ""
"""For environments that lack it."""


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    idle_interpreters_max: int = 4
    idle_seconds_max: float = 60.0
    calls_max: int = 100_000
    """An interpreter is replaced after so many calls, as leaks go with it."""
    output_bytes_max: int = OUTPUT_BYTES_MAX
    value_bytes_max: int = VALUE_BYTES_MAX


class InterpreterPool:
    """Owns every interpreter of a driver, from its start to the helper's word of its end."""

    def __init__(
        self,
        helper: HelperClient,
        root: Path,
        environment: dict[str, str],
        limits: PoolLimits,
        owner: int,
        grace_seconds: float,
        on_events: Callable[[InterpreterLink, InterpreterEvents], None],
        report_server: ReportServer | None = None,
    ) -> None:
        self._helper = helper
        self._root = root
        self._environment = environment
        self._limits = limits
        self._owner = owner
        self._grace_seconds = grace_seconds
        self._on_events = on_events
        self._report_server = report_server
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._idle: list[InterpreterLink] = []
        """The longest idle first."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self.links: dict[int, InterpreterLink] = {}

    def take(self, key: InterpreterKey) -> InterpreterLink:
        """One of this user, environment and hold."""
        for link in reversed(self._idle):
            if link.key == key:
                self._idle.remove(link)
                return link
        return self._start(key)

    def give_back(self, link: InterpreterLink) -> None:
        if not link.usable:
            return
        if self.is_worn(link):
            self.discard(link)
            return
        link.idle_since = clock()
        self._idle.append(link)
        while len(self._idle) > self._limits.idle_interpreters_max:
            self.discard(self._idle.pop(0))
        self._watch_idle()

    def is_worn(self, link: InterpreterLink) -> bool:
        return link.calls_count >= self._limits.calls_max

    def discard(self, link: InterpreterLink, *, at_once: bool = False) -> None:
        """Kills it, with all of its process group."""
        link.usable = False
        grace_seconds = 0.0 if at_once else self._grace_seconds
        self._helper.post(StopProgram(link.number, grace_seconds))

    def forget(self, number: int) -> InterpreterLink | None:
        """It has ended."""
        link = self.links.pop(number, None)
        if link is not None and link in self._idle:
            self._idle.remove(link)
        if link is not None and self._report_server is not None:
            self._report_server.close_one(f"interpreter-{number}")
        if not self.links:
            self._empty.set()
        return link

    async def close(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for link in self.links.values():
            self.discard(link, at_once=True)
        await self._empty.wait()

    def _start(self, key: InterpreterKey) -> InterpreterLink:
        number = next(self._numbers)
        folder = f"{self._root}/interpreter-{number}"
        link = InterpreterLink(number, key, folder, self._owner, self._on_events, self.discard)
        self.links[number] = link
        self._empty.clear()
        with contextlib.suppress(OSError):  # the helper finds none then, and says so
            Path(folder).mkdir(0o700)
        limits = self._limits
        packages = key.packages
        command = [
            f"{packages}/bin/python" if packages else sys.executable,
            "-P",
            _PROGRAM,
            str(INTERPRETER_SOCKET),
            str(INTERPRETER_MEMORY),
            folder,
            str(limits.output_bytes_max),
            str(limits.value_bytes_max),
            str(LONG_SECONDS),
            _CLOUDPICKLE,
        ]
        inherited = dict(self._environment)
        if packages:
            inherited.pop("PYTHONPATH", None)  # of the worker's own Python
        environment = {**inherited, **dict(key.env), "MYCEL_WORKDIR": folder}
        confinement = key.confinement
        if self._report_server is not None:
            path = self._report_server.open(f"interpreter-{number}", link.running)
            environment[SOCKET_VARIABLE] = path
            confinement = msgspec.structs.replace(confinement, socket=path)
        request = StartProgram(number, command, environment, folder, confinement)
        self._helper.post_with_descriptors(request, link.descriptors())
        link.handed_over()
        return link

    def _watch_idle(self) -> None:
        if self._idle_timer is None and self._idle:
            wait = self._idle[0].idle_since + self._limits.idle_seconds_max - clock()
            self._idle_timer = self._loop.call_later(max(wait, 0.0), self._end_idle)

    def _end_idle(self) -> None:
        self._idle_timer = None
        oldest_allowed = clock() - self._limits.idle_seconds_max
        while self._idle and self._idle[0].idle_since <= oldest_allowed:
            self.discard(self._idle.pop(0))
        self._watch_idle()
