"""On the control stream: negotiation and news, which no full work stream delays."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from mycel.core.identifiers import LeaseId, RequestId
from mycel.core.model.resources import Amounts, Free, Usage
from mycel.core.model.work import Shape
from mycel.core.ranges import (
    FEW,
    MANY,
    Amount,
    Balance,
    Count,
    Finite,
    Name,
    Priority,
    Reason,
    Some,
    Token,
)

from .message import Message


class Request(Message, frozen=True, tag="request"):
    request: RequestId
    shape: Shape
    slots: Some
    token: Token = b""
    """By what right: of the shape's user, bound to the scheduler that asks."""
    expected_seconds: Amount = 0.0
    """How long such tasks usually take; 0 if nobody knows."""


class Offer(Message, frozen=True, tag="offer"):
    """The answer to a request. A yes carries the lease itself, so that negotiation costs one
    round trip; who does not want it any more releases it."""

    request: RequestId
    yes: bool
    reason: Reason = ""
    eta_seconds: Amount = 0.0
    """With a yes: how long until such a task starts. With a no: when there may be room."""
    cost: Amount = 0.0
    """Of one task, as long as it is expected to take."""
    lease: LeaseId | None = None
    slots: Count = 0
    window: Count = 0
    clock: Finite = 0.0
    capacity: Count = 0
    """How many more such tasks fit beside these."""
    floor: Amount = 0.0
    """Each attempt under the lease costs at least this…"""
    rate: Amount = 0.0
    """…or so much an hour, as long as the lease lasts."""


class Wanted(Message, frozen=True, tag="wanted"):
    """Somebody's request does not fit beside these leases of one holder. One message tells of
    all: a worker has as many as it has lanes, and is asked many times a second."""

    lease: LeaseId
    slots: Some
    priority: Priority
    ours: bool
    """The request came from the holder of the leases itself."""
    others: Annotated[tuple[LeaseId, ...], MANY] = ()
    """Beside `lease`."""


class Load(Message, frozen=True, tag="load"):
    """What of the worker is free now, as a whole."""

    free: Free
    running: Count
    accepting: bool = True
    closed_for: Reason = ""
    usage: Usage | None = None


class LoadChange(Message, frozen=True, tag="load_change"):
    """What has changed since `Register`, or since the last of these; None is as before. After a
    `Described` the next one is whole."""

    running: Count
    accepting: bool = True
    cpu_millis: Balance | None = None
    memory: Balance | None = None
    disk: Balance | None = None
    gpu_millis: Annotated[tuple[Balance, ...], FEW] | None = None
    custom: Amounts | None = None
    closed_for: Reason = ""
    """Why it is not accepting."""
    usage: Usage | None = None

    def applied_to(self, free: Free) -> Free:
        changes = {
            name: value for name in FREE_FIELDS if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(free, **changes)


FREE_FIELDS: Final = ("cpu_millis", "memory", "disk", "gpu_millis", "custom")


def load_change(
    before: Free | None,
    now: Free,
    running: int,
    closed_for: str = "",
    usage: Usage | None = None,
) -> LoadChange:
    """`before` is None for a whole one; `usage` only if it has changed."""
    changes = {
        name: getattr(now, name)
        for name in FREE_FIELDS
        if before is None or getattr(now, name) != getattr(before, name)
    }
    return LoadChange(running, not closed_for, closed_for=closed_for, usage=usage, **changes)


class Close(Message, frozen=True, tag="close"):
    """Somebody wants this worker to take no new work, or some again; the answer is `Closed`."""

    request: RequestId
    on: bool
    user: Name
    hand_back_after_seconds: Finite | None = None
    token: Token = b""
    """By what right: of that user, bound to the scheduler that asks."""


class Closed(Message, frozen=True, tag="closed"):
    request: RequestId
    objection: Reason
    """Not empty: nothing was changed."""
    accepting: bool
    closed_for: Reason = ""
