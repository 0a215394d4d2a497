"""How an attempt ended: its exit codes, then what the batch system said, then why we closed it."""

from __future__ import annotations

from typing import Final

from .attempts import Attempt, Cause, ElementSeen, Outcome, OutcomeState
from .batch_jobs import BatchState

_SAID: Final = (
    (BatchState.TIMED_OUT, OutcomeState.TIMED_OUT),
    (BatchState.OUT_OF_MEMORY, OutcomeState.OUT_OF_MEMORY),
    (BatchState.PREEMPTED, OutcomeState.PREEMPTED),
)
"""By weight: one element that ran out of time says more than one that was cancelled then."""
SIGNALLED: Final = 128
"""A shell adds the signal's number to it. Lower codes a command chose itself."""


def verdict_of(attempt: Attempt, elements: tuple[ElementSeen, ...]) -> Outcome:
    """Nothing of it is active any more, and nothing more will begin."""
    fenced = attempt.fenced or frozenset()
    codes = tuple(seen.exit_code for seen in elements)

    def outcome(state: OutcomeState, cause: Cause = attempt.cause) -> Outcome:
        return Outcome(state, cause, codes, attempt.text)

    if len(fenced) == len(elements):
        cancelled = attempt.cause is Cause.CANCELLED
        return outcome(OutcomeState.CANCELLED if cancelled else OutcomeState.RETURNED)
    if all(code == 0 for code in codes):
        return outcome(OutcomeState.SUCCEEDED, Cause.NONE)
    if attempt.cause is Cause.CANCELLED:
        return outcome(OutcomeState.CANCELLED)
    for said, state in _SAID:
        if said in attempt.ended_as:
            return outcome(state, Cause.KILLED)
    by_signal = any(code is None or code > SIGNALLED for code in codes)
    if BatchState.CANCELLED in attempt.ended_as and by_signal and not fenced:
        return outcome(OutcomeState.CANCELLED, Cause.SITE)
    if all(code is not None for code in codes):
        return outcome(OutcomeState.FAILED, Cause.NONE)
    if all(code is not None or index in fenced for index, code in enumerate(codes)):
        return outcome(OutcomeState.PARTIAL)
    return outcome(OutcomeState.LOST)
