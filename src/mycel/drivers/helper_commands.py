"""Commands that a driver runs for its own sake: to build an environment, to fetch an image.

They start through the spawn helper like tasks do, each in a lane of its own, so that none of
them outlives the worker. A command with a `RunConfinement` is confined as tasks are. The others
are ordinary processes of the worker's user, and run only programs that its owner has installed.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import msgspec

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.model.resources import Pairs
from mycel.core.model.work import Work
from mycel.drivers.process.command_driver import CommandDriver, Prepared
from mycel.drivers.sandbox.run_confinement import RunConfinement

from .interface import Finished, Run, Text

if TYPE_CHECKING:
    from .registry import DriverContext

_numbers = itertools.count(1 << 61)
"""An errand's attempt and lane. A worker counts those of its tasks from 1, and never gets here."""


class HelperCommands:
    def __init__(self, context: DriverContext) -> None:
        self._ends: dict[AttemptId, asyncio.Future[Finished]] = {}
        # Without a desk: what it does is not a task's, and it has nothing to report.
        self._driver = _Errand(msgspec.structs.replace(context, listener=self, report_server=None))

    async def run(
        self,
        command: tuple[str, ...],
        *,
        env: Pairs = (),
        timeout_seconds: float | None = None,
        confinement: RunConfinement | None = None,
    ) -> Finished:
        """Its end, whatever it is. When the caller is cancelled, the command is killed, and gone
        when this ends."""
        number = next(_numbers)
        attempt, lane = AttemptId(number), LaneId(number)
        work = Work("errand", command=command, env=env, timeout_seconds=timeout_seconds)
        end = self._ends[attempt] = asyncio.get_running_loop().create_future()
        run = Run(attempt, "errand", "errand", 1, "", work, b"")
        self._driver.send(lane, run, confinement)
        try:
            return await asyncio.shield(end)
        except asyncio.CancelledError:
            self._driver.kill([attempt])
            await asyncio.wait([end])
            raise

    async def close(self) -> None:
        await self._driver.close()

    def started(self, attempts: list[tuple[AttemptId, float]]) -> None: ...
    def streamed(self, attempt: AttemptId, piece: bytes) -> None: ...
    def wrote(self, texts: list[Text]) -> None: ...
    def returned(self, lane: LaneId, attempts: list[AttemptId]) -> None: ...
    def withdrawn(self, attempts: list[AttemptId]) -> None:
        self.finished([Finished(one, "cancelled", error="cancelled") for one in attempts])

    def finished(self, finished: list[Finished]) -> None:
        for one in finished:
            self._driver.close_lane(LaneId(one.attempt))
            end = self._ends.pop(one.attempt, None)
            if end is not None and not end.done():
                end.set_result(one)


class _Errand(CommandDriver):
    name = "errand"
    _confinement: RunConfinement | None = None
    """Of what is being submitted."""

    def send(self, lane: LaneId, run: Run, confinement: RunConfinement | None) -> None:
        self._confinement = confinement
        self.submit(lane, [run])

    def confinement_of(self, lane: LaneId, run: Run) -> RunConfinement | None:
        return self._confinement

    def prepared(self, run: Run) -> Prepared:
        return run.work, ()
