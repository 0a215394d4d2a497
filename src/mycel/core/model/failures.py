"""Why an attempt or a task failed, as a code.

A program that reacts to a failure reacts to its code. The text beside it is for people, and may
change. A driver names the code where the failure happens; `code_of` names it for drivers that
do not. Drivers of other packages may bring codes of their own.
"""

from __future__ import annotations

from typing import Final

from .work import Finished

# The task's own failure
EXCEPTION: Final = "exception"
"""The function raised."""
EXIT_CODE: Final = "exit_code"
"""The process ended with a code other than 0."""
CRASH: Final = "crash"
"""The task took its interpreter along."""
TIMEOUT: Final = "timeout"
LIMIT: Final = "limit"
"""The task broke a limit: memory, disk, processes or the length of its result."""
BAD_INPUT: Final = "bad_input"
"""The task's definition or input makes no sense to its driver."""
INPUT_MISSING: Final = "input_missing"
OUTPUT_MISSING: Final = "output_missing"
ENVIRONMENT: Final = "environment"
"""The task's packages cannot be installed."""
IMAGE: Final = "image"
"""The task's container image cannot be had."""

# The worker's failure, or a model server's
DRIVER_FAULT: Final = "driver_fault"
MODEL_UPSTREAM: Final = "model_upstream"
"""The model server broke the connection, or answered nonsense. `upstream` adds its HTTP status."""
RESULT_DAMAGED: Final = "result_damaged"
"""The result is not what its digest says."""
LOST: Final = "lost"
"""The worker is gone, or has forgotten the attempt."""
HANDED_BACK: Final = "handed_back"
"""The worker has stopped the attempt for a reason of its own, such as its owner's return."""

HELD_TOO_LONG: Final = "held_too_long"
"""The worker had the attempt for ten times as long as such tasks take elsewhere."""

# Decided by the scheduler
CANCELLED: Final = "cancelled"
DEADLINE: Final = "deadline"
MAX_COST: Final = "max_cost"
POISON: Final = "poison"
STORE_FAULT: Final = "store_fault"
"""The task's end could not be stored as it was."""


def upstream(status: int) -> str:
    """The code for an HTTP status that a model server answered, such as `model_upstream_429`."""
    return f"{MODEL_UPSTREAM}_{status}"


def upstream_status(code: str) -> int | None:
    """The HTTP status in a code that `upstream` made; None if it is another code."""
    status = code.removeprefix(f"{MODEL_UPSTREAM}_")
    return int(status) if status != code and status.isdecimal() else None


def code_of(finished: Finished) -> str:
    """The code that the driver named, or the one that the rest of its report implies."""
    if finished.code or finished.state == "succeeded":
        return finished.code
    if finished.state == "timed_out":
        return TIMEOUT
    if finished.state == "cancelled":
        return CANCELLED
    if finished.driver_fault:
        return DRIVER_FAULT
    if finished.crashed:
        return CRASH
    return EXCEPTION if finished.exit_code is None else EXIT_CODE
