"""Whose doing the end of an attempt was.

good      it ended well
task      it failed by its own code, input or limits: it counts for the task alone
worker    its worker lost it, damaged its result, or its driver failed
neither   a client, the scheduler, an owner or somebody else's server ended it
          (a worker's death is one fault, not one for each attempt that is lost with it)
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from mycel.core.model.failures import (
    CANCELLED,
    DEADLINE,
    LOST,
    MAX_COST,
    MODEL_UPSTREAM,
    POISON,
    STORE_FAULT,
)


class Verdict(StrEnum):
    GOOD = "good"
    TASK = "task"
    WORKER = "worker"
    NEITHER = "neither"


_DECIDED: Final = frozenset({DEADLINE, MAX_COST, POISON, STORE_FAULT})
"""By the scheduler, or by what the client has set."""


def verdict_of(state: str, code: str, *, driver_fault: bool) -> Verdict:
    """Of an outcome as its worker reports it."""
    if state == "succeeded":
        return Verdict.GOOD
    if code == LOST or code in _DECIDED or code.startswith(MODEL_UPSTREAM):
        return Verdict.NEITHER
    # A worker that ends a task on its own account is at fault, not the task.
    if driver_fault or state in ("cancelled", "lost") or code == CANCELLED:
        return Verdict.WORKER
    return Verdict.TASK
