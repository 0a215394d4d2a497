"""Makes the worker that imports it a liar: the real program and protocol, and no task is ever run.

What it makes of its tasks stands in `MYCEL_LIE`: `never` says that they have begun and no more,
`wrong` gives a wrong value at once, `fails` that they have failed, `faults` that its driver has.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from mycel.core.effects import Effect, KillRuns, RunAttempts, WithdrawRuns
from mycel.core.events import RunsFinished, RunsStarted
from mycel.core.model.work import Finished, Run
from mycel.core.worker.machine import WorkerMachine

_honest = WorkerMachine.handle
_LIES = {
    "wrong": Finished(0, "succeeded", value=b'{"text":"wrong"}', exit_code=0),  # type: ignore[arg-type]
    "fails": Finished(0, "failed", exit_code=1, error="exit code 1"),  # type: ignore[arg-type]
    "faults": Finished(0, "failed", error="out of order", driver_fault=True),  # type: ignore[arg-type]
}


def _lie(runs: list[Run], now: float) -> RunsStarted | RunsFinished:
    lie = os.environ["MYCEL_LIE"]
    if lie == "never":
        return RunsStarted([(run.attempt, now) for run in runs])
    replace = msgspec.structs.replace
    return RunsFinished(
        [replace(_LIES[lie], attempt=run.attempt, started_at=now, ended_at=now) for run in runs]
    )


def _handle(self: WorkerMachine, event: Any, now: float, *, more: bool = False) -> list[Effect]:
    told: list[Effect] = []
    for effect in _honest(self, event, now, more=more):
        if isinstance(effect, RunAttempts):
            told += _handle(self, _lie(effect.runs, now), now)
        elif not isinstance(effect, KillRuns | WithdrawRuns):  # there is nothing to stop
            told.append(effect)
    return told


WorkerMachine.handle = _handle  # type: ignore[method-assign]
