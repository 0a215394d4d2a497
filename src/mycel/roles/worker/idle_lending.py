"""A machine that lends itself only while its owner is away, and says what it is doing.

    look ─▶ usage: cores, memory, GPUs      ─▶ schedulers, when it has changed by a sixteenth
         └▶ is the owner away? nothing typed for `idle_minutes`, little else running
                                            ─▶ shut, or open again

Looking may take a while, so it happens in a thread.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from mycel.core.events import Event, Reopen, Shut, UsageChanged
from mycel.core.model.resources import Usage

CAUSE: Final = "owner"
LOOK_SECONDS: Final = 2.0
COMMAND_SECONDS: Final = 30.0
PRESENT: Final = "its owner is using it"
BUSY: Final = "its owner's programs are using it"


class IdleSettings(msgspec.Struct, frozen=True, kw_only=True):
    idle_minutes: float = 10.0
    command: str = ""
    """Decides instead: exit code 0 says that the owner is away."""
    others_load_max: float = 0.25
    """The share of the cores that others may use meanwhile."""
    hand_back_after_seconds: float | None = None


class UsageMeter(Protocol):
    def look(self) -> Usage: ...


class Lending:
    def __init__(
        self,
        post: Callable[[Event], None],
        meter: UsageMeter | None,
        idle: IdleSettings | None,
        note: Callable[..., None],
    ) -> None:
        """Without a meter nothing is measured; without `idle` it lends itself always."""
        self._post = post
        self._meter = meter
        self._idle = idle
        self._note = note
        self._usage: Usage | None = None
        self._reason: str | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._idle is not None:
            self._tell(PRESENT)  # until the first look says otherwise
        self._task = asyncio.get_running_loop().create_task(self._look_for_ever())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        looks = Looks(self._idle) if self._idle is not None else None
        while True:
            if self._meter is not None:
                usage = await loop.run_in_executor(None, self._meter.look)
                if usage != self._usage:
                    self._usage = usage
                    self._post(UsageChanged(usage))
            if looks is not None:
                self._tell(await loop.run_in_executor(None, looks.reason))
            await asyncio.sleep(LOOK_SECONDS)

    def _tell(self, reason: str) -> None:
        """Shut for this reason; empty is open."""
        if reason == self._reason:
            return
        self._reason = reason
        self._note("lending", open=not reason, reason=reason)
        if reason:
            after = None if self._idle is None else self._idle.hand_back_after_seconds
            self._post(Shut(CAUSE, reason, after))
        else:
            self._post(Reopen(CAUSE))


class Looks:
    """Whether the owner is there, in so many words."""

    def __init__(self, settings: IdleSettings) -> None:
        from mycel.devices.machine_usage import OthersMeter

        self._settings = settings
        self._others = None if settings.command else OthersMeter(os.getpid())

    def reason(self) -> str:
        from mycel.devices.user_activity import idle_seconds

        settings = self._settings
        if settings.command:
            return "" if _says_away(settings.command) else PRESENT
        assert self._others is not None
        load = self._others.look()
        if idle_seconds() < settings.idle_minutes * 60.0:
            return PRESENT
        return BUSY if load > settings.others_load_max else ""


def _says_away(command: str) -> bool:
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False  # who cannot tell lends nothing
    return done.returncode == 0
