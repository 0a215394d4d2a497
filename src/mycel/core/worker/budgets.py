"""What an attempt may cost here: it ends before it would cost more.

The time-out of an attempt with `max_cost` is at most as long as its lane's rate allows. Whatever
ending it takes beyond that is at the worker's expense.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.core.model.failures import MAX_COST
from mycel.core.model.prices import affordable_seconds, cost
from mycel.core.model.work import Finished, Work

_SECONDS_MIN: Final = 0.001
"""A time-out of nothing would be none at all to some drivers."""


def limited(work: Work, rate: float, budget: float | None) -> Work | None:
    """The work with a time-out that keeps it within the budget; None if it has a shorter one
    of its own, or costs nothing by the hour."""
    affordable = None if budget is None else affordable_seconds(rate, budget)
    own = work.timeout_seconds
    if affordable is None or (own is not None and own <= affordable):
        return None
    return msgspec.structs.replace(work, timeout_seconds=max(_SECONDS_MIN, affordable))


def ended_in_time(bare: Finished, budget: float) -> Finished:
    """Of an attempt that `limited` has ended: not its own time-out was over."""
    if bare.state != "timed_out":
        return bare
    error = f"it was stopped before it cost more than {budget:g}, its max_cost less what was spent"
    return msgspec.structs.replace(bare, state="failed", code=MAX_COST, error=error)


def charged(bare: Finished, floor: float, rate: float, budget: float | None) -> float:
    """Nothing, where this worker is to blame; never more than the task may cost."""
    if bare.driver_fault or not (floor or rate):
        return 0.0
    price = cost(floor, rate, bare.ended_at - bare.started_at)
    return price if budget is None else min(price, budget)
