"""On the control stream: news, which no full work stream delays."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from mycel.core.identifiers import RequestId
from mycel.core.model.resources import Amounts, Free, Usage
from mycel.core.ranges import (
    FEW,
    Balance,
    Count,
    Finite,
    Name,
    Reason,
    Token,
)

from .message import Message


class Load(Message, frozen=True, tag="load"):
    """What of the worker is free now, or the scheduler's own, as a whole. Told when others have
    booked more or less of it, and when there is room after a refusal for want of it."""

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
