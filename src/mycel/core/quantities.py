"""Numbers that come over the wire: what is beyond these is no number of ours, and a message with
one no message. They are checked where it is read, so that nobody reckons with infinity."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Finite = Annotated[float, Meta(ge=-1e18, le=1e18)]
Amount = Annotated[float, Meta(ge=0.0, le=1e15)]
Size = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""Bytes, and what counts on without end."""
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
"""Of things that somebody may go through one by one."""
Share = Annotated[int, Meta(ge=-1, le=1_000)]
"""In sixteenths; -1 is unknown."""
