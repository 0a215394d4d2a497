"""Values of calls that are too long to be told: they become blobs before the end is told.

finished, with a value in a folder ─▶ sent to the scheduler ─▶ finished, with its digest
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from mycel.blobs.errors import BadTree
from mycel.core.identifiers import AttemptId
from mycel.core.model.task_files import FILE_KEY

from .interface import DriverListener, Finished, Run
from .python.interpreter_values import PICKLE_FILE


class ValueSender(Protocol):
    async def send_value(self, run: Run, folder: Path) -> tuple[str, int]: ...


class LongValues:
    """Of functions that came by value: others return JSON, which has its own limit."""

    def __init__(self, files: ValueSender, events: DriverListener) -> None:
        self._files = files
        self._events = events
        self._runs: dict[AttemptId, Run] = {}
        self._sending: dict[AttemptId, asyncio.Task[None]] = {}

    def expect(self, runs: list[Run]) -> None:
        for run in runs:
            if run.work.call is not None:
                self._runs[run.attempt] = run

    def finished(self, finished: list[Finished]) -> list[Finished]:
        """Keeps those whose values are to be sent, and returns the others."""
        if not self._runs:
            return finished
        through = []
        for ended in finished:
            run = self._runs.pop(ended.attempt, None)
            if run is None or not ended.left:
                through.append(ended)
            else:
                sending = asyncio.create_task(self._send(run, ended))
                self._sending[ended.attempt] = sending
        return through

    def forget(self, attempt: AttemptId) -> None:
        self._runs.pop(attempt, None)

    def kill(self, attempts: list[AttemptId]) -> list[AttemptId]:
        """Ends those that are here, and returns the others."""
        for attempt in attempts:
            if attempt in self._sending:
                # Soon, not now: a task that is cancelled before it begins reports nothing.
                asyncio.get_running_loop().call_soon(self._sending[attempt].cancel)
        return [attempt for attempt in attempts if attempt not in self._sending]

    async def close(self) -> None:
        await self._stop(self._sending.values())

    async def _stop(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        stopped = list(tasks)
        for task in stopped:
            task.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)

    async def _send(self, run: Run, ended: Finished) -> None:
        change: dict[str, object] = {"left": ""}
        try:
            digest, size = await self._files.send_value(run, Path(ended.left))
            file = {FILE_KEY: digest, "path": f".values/{digest[-32:]}", "size": size}
            change["value"] = msgspec.json.encode({PICKLE_FILE: file})
        except asyncio.CancelledError:
            change |= {"state": "cancelled", "error": "cancelled"}
        except BadTree as error:
            change |= {"state": "failed", "error": f"its result is refused: {error}"}
        except Exception as error:  # noqa: BLE001 - the edge that owns it: else it never ends
            reason = f"its result cannot be brought home: {error}"
            change |= {"state": "failed", "error": reason, "driver_fault": True}
        del self._sending[run.attempt]
        self._events.finished([msgspec.structs.replace(ended, **change)])
