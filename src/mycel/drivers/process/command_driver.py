"""Drivers whose tasks are commands: what `process` and `container` have in common, and the
short way to a driver of your own.

The work is done by the spawn helper; here attempts become its requests, and its reports the
listener's calls. A driver says which command a run is (`prepared`), and may look at how it
ended (`concluded`). Lanes, time-outs, kills, output and working folders come with it:

    class Shout(CommandDriver):
        name = "shout"

        def prepared(self, run):
            return run.work, ("echo", *run.work.command, "!")
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.model.work import Work
from mycel.drivers.helper.helper_messages import (
    CloseLane,
    Configure,
    Kill,
    ProcessRun,
    Report,
    RunProcesses,
    Withdraw,
)
from mycel.drivers.helper.leftovers import kill_abandoned, remove_leftovers
from mycel.drivers.inherited_environment import inherited_environment
from mycel.drivers.interface import Finished, Run
from mycel.drivers.python.interpreter_records import clock
from mycel.drivers.report_server import SOCKET_VARIABLE
from mycel.drivers.sandbox.run_confinement import RunConfinement

from .command_arguments import BadArguments

if TYPE_CHECKING:
    from mycel.drivers.registry import DriverContext

LANES_FOLDER: Final = "process"
"""Of all drivers of commands: the helper keeps their working folders in one place."""
HELPER_LOST: Final = "the worker's spawn helper has ended"

Prepared = tuple[Work, tuple[str, ...]]
"""What gives a run its environment and time-out, and its command: empty, it is the work's."""


class CommandDriver:
    name: str
    is_confined = False
    """Whether its commands run in the worker's sandbox and within its limits; a driver that has
    walls of its own says no."""

    def __init__(
        self, context: DriverContext, *, environment: dict[str, str] | None = None
    ) -> None:
        self._helper = helper = context.helper
        self._listener = context.listener
        self._grace_seconds = context.grace_seconds
        self._policy = context.policy
        self._loop = asyncio.get_running_loop()
        self._outstanding: set[AttemptId] = set()
        self._open: set[LaneId] = set()
        self._report_server = context.report_server
        self._seats: dict[LaneId, deque[AttemptId]] = {}
        """Who may report by which lane, in the order in which they run."""
        self._refused: list[Finished] = []
        self._none_left = asyncio.Event()
        self._none_left.set()
        root = context.root / LANES_FOLDER
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        if not helper.is_configured:
            remove_leftovers(self._root, "lane-")
            inherited = inherited_environment() if environment is None else environment
            limit = context.output_bytes_max
            helper.configure(Configure(str(self._root), inherited, self._grace_seconds, limit))
        helper.on_processes.append(self._reported)
        helper.on_lost.append(self._helper_lost)

    def prepared(self, run: Run) -> Prepared:
        """Raises `BadArguments` for what is the task's own fault."""
        raise NotImplementedError

    def concluded(self, finished: Finished) -> Finished | None:
        """Its end as the listener is to see it; nothing, if `tell` will be called later."""
        return finished

    def confinement_of(self, lane: LaneId, run: Run) -> RunConfinement | None:
        return self._policy.of(lane, run) if self.is_confined else None

    def dropped(self, attempts: Iterable[AttemptId]) -> None:
        """These were given to this driver, and will not run."""

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        if self._helper.lost:
            self._refuse([_lost(run.attempt) for run in runs])
            return
        self._open.add(lane)
        ready = [one for run in runs if (one := self._prepare(lane, run)) is not None]
        for (work, job_id, confinement), alike in itertools.groupby(ready, lambda one: one[:3]):
            prepared = [run for *_, run in alike]
            timeout_seconds = self._policy.timeout(work.timeout_seconds)
            self._outstanding.update(AttemptId(run.attempt) for run in prepared)
            self._none_left.clear()
            environment = work.env
            path = self._seat(lane, prepared)
            if path:
                environment = (*environment, (SOCKET_VARIABLE, path))
                confinement = (
                    None
                    if confinement is None
                    else msgspec.structs.replace(confinement, socket=path)
                )
            self._helper.post(
                RunProcesses(
                    lane, job_id, work.command, environment, timeout_seconds, prepared, confinement
                )
            )

    def withdraw(self, attempts: list[AttemptId]) -> None:
        self._post_for(attempts, lambda known: self._helper.post(Withdraw(known)))

    def kill(self, attempts: list[AttemptId]) -> None:
        self._post_for(attempts, lambda known: self._helper.post(Kill(known, self._grace_seconds)))

    def close_lane(self, lane: LaneId) -> None:
        self._open.discard(lane)
        self._policy.cores.give_back(lane)
        self._helper.post(CloseLane(lane))
        if self._seats.pop(lane, None) is not None and self._report_server is not None:
            self._report_server.close_one(f"lane-{lane}")

    def _seat(self, lane: LaneId, runs: list[ProcessRun]) -> str:
        """Where the tasks of this lane report; empty if nowhere."""
        if self._report_server is None:
            return ""
        seated = self._seats.setdefault(lane, deque())
        while seated and seated[0] not in self._outstanding:
            seated.popleft()
        seated.extend(AttemptId(run.attempt) for run in runs)
        return self.reporting_path(lane)

    def reporting_path(self, lane: LaneId) -> str:
        """The socket by which the tasks of this lane report; empty if they cannot."""
        if self._report_server is None:
            return ""
        seated, ours = self._seats.setdefault(lane, deque()), self._outstanding
        return self._report_server.open(
            f"lane-{lane}",
            lambda: [one for one in seated if one in ours],
            anybody=not self.is_confined,
        )

    async def close(self) -> None:
        if self._outstanding:
            self._helper.post(Kill(list(self._outstanding), 0.0))
        await self._none_left.wait()
        for lane in list(self._open):
            self.close_lane(lane)

    def tell(self, finished: list[Finished]) -> None:
        """The end of attempts, once nothing is left to be done for them."""
        self._outstanding.difference_update(one.attempt for one in finished)
        self._listener.finished(finished)
        if not self._outstanding:
            self._none_left.set()

    def _post_for(self, attempts: list[AttemptId], post: Callable[[list[int]], None]) -> None:
        known: list[int] = [attempt for attempt in attempts if attempt in self._outstanding]
        if known:
            post(known)

    def _prepare(
        self, lane: LaneId, run: Run
    ) -> tuple[Work, str, RunConfinement | None, ProcessRun] | None:
        try:
            work, command = self.prepared(run)
        except BadArguments as error:
            now = clock()
            refused = Finished(
                run.attempt, "failed", error=str(error), started_at=now, ended_at=now
            )
            self._refuse([refused])
            return None
        prepared = ProcessRun(run.attempt, run.number, run.task_id, command, run.folder)
        return work, run.job_id, self.confinement_of(lane, run), prepared

    def _refuse(self, finished: list[Finished]) -> None:
        self.dropped(one.attempt for one in finished)
        if not self._refused:
            self._loop.call_soon(self._tell_refused)
        self._refused += finished

    def _tell_refused(self) -> None:
        refused, self._refused = self._refused, []
        self._listener.finished(refused)

    def _reported(self, report: Report) -> None:
        """Takes from a report what is of this driver."""
        ours = self._outstanding
        started = [(AttemptId(a), at) for a, at in report.started if a in ours]
        if started:
            self._listener.started(started)
        written = [text for text in report.written if text.attempt in ours]
        if written:
            self._listener.wrote(written)
        finished = [
            concluded
            for one in report.finished
            if one.attempt in ours and (concluded := self.concluded(one)) is not None
        ]
        if finished:
            self.tell(finished)
        for lane, attempts in report.returned:
            returned = [AttemptId(attempt) for attempt in attempts if attempt in ours]
            if returned:
                ours.difference_update(returned)
                self.dropped(returned)
                self._listener.returned(LaneId(lane), returned)
        withdrawn = [AttemptId(attempt) for attempt in report.withdrawn if attempt in ours]
        if withdrawn:
            ours.difference_update(withdrawn)
            self.dropped(withdrawn)
            self._listener.withdrawn(withdrawn)
        if not ours:
            self._none_left.set()

    def _helper_lost(self) -> None:
        kill_abandoned(self._root)
        outstanding, self._outstanding = self._outstanding, set()
        self._none_left.set()
        if outstanding:
            self._listener.finished([_lost(attempt) for attempt in sorted(outstanding)])


def _lost(attempt: AttemptId) -> Finished:
    now = clock()
    return Finished(
        attempt, "failed", error=HELPER_LOST, driver_fault=True, started_at=now, ended_at=now
    )
