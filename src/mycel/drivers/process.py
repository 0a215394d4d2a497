"""The `process` driver: each task is a command, in a process group and a folder of its own.

The work is done by the spawn helper; here attempts become its requests, and its reports the
listener's calls.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mycel.core.identifiers import AttemptId, LaneId
from mycel.core.work import Work

from .arguments import BadArguments, fill_command, fill_environment
from .environment import inherited_environment
from .helper_client import Helper
from .helper_messages import (
    CloseLane,
    Configure,
    Kill,
    ProcessRun,
    Report,
    RunProcesses,
    Withdraw,
)
from .interface import OUTPUT_BYTES_MAX, DriverListener, Finished, Run
from .interpreter_records import clock
from .leftovers import kill_abandoned, remove_leftovers

GRACE_SECONDS: Final = 5.0
HELPER_LOST: Final = "the worker's spawn helper has ended"


class ProcessDriver:
    """`root` belongs to this driver alone: what an earlier worker left in it is removed."""

    def __init__(
        self,
        helper: Helper,
        listener: DriverListener,
        root: Path,
        *,
        grace_seconds: float = GRACE_SECONDS,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._helper = helper
        self._listener = listener
        self._grace_seconds = grace_seconds
        self._loop = asyncio.get_running_loop()
        self._outstanding: set[AttemptId] = set()
        self._refused: list[Finished] = []
        self._none_left = asyncio.Event()
        self._none_left.set()
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        remove_leftovers(self._root, "lane-")
        inherited = inherited_environment() if environment is None else environment
        helper.post(Configure(str(self._root), inherited, grace_seconds, output_bytes_max))
        helper.on_processes = self._reported
        helper.on_lost.append(self._helper_lost)

    @property
    def name(self) -> str:
        return "process"

    def submit(self, lane: LaneId, runs: list[Run]) -> None:
        if self._helper.lost:
            self._refuse([_lost(run.attempt) for run in runs])
            return
        ready = [one for one in map(self._prepared, runs) if one is not None]
        for (work, job_id), alike in itertools.groupby(ready, lambda one: one[:2]):
            prepared = [run for _, _, run in alike]
            if prepared:
                self._outstanding.update(AttemptId(run.attempt) for run in prepared)
                self._none_left.clear()
                self._helper.post(
                    RunProcesses(
                        lane, job_id, work.command, work.env, work.timeout_seconds, prepared
                    )
                )

    def withdraw(self, attempts: list[AttemptId]) -> None:
        self._post_for(attempts, lambda known: self._helper.post(Withdraw(known)))

    def kill(self, attempts: list[AttemptId]) -> None:
        self._post_for(attempts, lambda known: self._helper.post(Kill(known, self._grace_seconds)))

    def close_lane(self, lane: LaneId) -> None:
        self._helper.post(CloseLane(lane))

    async def close(self) -> None:
        if self._outstanding:
            self._helper.post(Kill(list(self._outstanding), 0.0))
        await self._none_left.wait()

    def _post_for(self, attempts: list[AttemptId], post: Callable[[list[int]], None]) -> None:
        known: list[int] = [attempt for attempt in attempts if attempt in self._outstanding]
        if known:
            post(known)

    def _prepared(self, run: Run) -> tuple[Work, str, ProcessRun] | None:
        command: tuple[str, ...] = ()
        work = run.work
        if run.arguments:
            try:
                work = fill_environment(work, run.arguments)
                command = fill_command(run.work.command, run.arguments)
            except BadArguments as error:
                now = clock()
                self._refuse(
                    [
                        Finished(
                            run.attempt, "failed", error=str(error), started_at=now, ended_at=now
                        )
                    ]
                )
                return None
        return (
            work,
            run.job_id,
            ProcessRun(run.attempt, run.number, run.task_id, command, run.folder),
        )

    def _refuse(self, finished: list[Finished]) -> None:
        if not self._refused:
            self._loop.call_soon(self._tell_refused)
        self._refused += finished

    def _tell_refused(self) -> None:
        refused, self._refused = self._refused, []
        self._listener.finished(refused)

    def _reported(self, report: Report) -> None:
        outstanding = self._outstanding
        if report.started:
            self._listener.started([(AttemptId(a), at) for a, at in report.started])
        if report.finished:
            outstanding.difference_update(finished.attempt for finished in report.finished)
            self._listener.finished(report.finished)
        for lane, attempts in report.returned:
            returned = [AttemptId(attempt) for attempt in attempts]
            outstanding.difference_update(returned)
            self._listener.returned(LaneId(lane), returned)
        if report.withdrawn:
            withdrawn = [AttemptId(attempt) for attempt in report.withdrawn]
            outstanding.difference_update(withdrawn)
            self._listener.withdrawn(withdrawn)
        if not outstanding:
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
        attempt,
        "failed",
        error=HELPER_LOST,
        driver_fault=True,
        started_at=now,
        ended_at=now,
    )
