"""One attempt of a job on a cluster, from its assignment to the day it is forgotten."""

from __future__ import annotations

import msgspec


class ElementSeen(msgspec.Struct, frozen=True):
    """What the shared folder says of one element."""

    claimed: bool
    """It has begun. Only one copy ever does."""
    exit_code: int | None = None
    """None: it has not ended, or was killed before it could say so."""
