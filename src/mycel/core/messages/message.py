"""What all messages have in common."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

WIRE_VERSION: Final = 3
MESSAGE_BYTES: Final = 8 << 20
"""Arguments, or results, that make a message longer than this go into the next one, unless
one alone is; a frame may be twice as long."""
PartBytes = Annotated[int, msgspec.Meta(ge=0, le=MESSAGE_BYTES)]
"""Of a value that is fetched piece by piece."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages; the subclasses carry the tag that names them on the wire."""
