"""Why a worker refuses an assignment, as codes, and what follows for the scheduler's books."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

NO_ROOM: Final = "no_room"
"""Its ledger has no room now: others have booked it, or something outlives its attempt."""
CLOSED: Final = "closed"
"""It takes no new work: it was drained, it stops, or its owner or his hours say so."""
LEASE_OVER: Final = "lease_over"
"""The registration has ended; it registers anew."""
NOT_INTRODUCED: Final = "not_introduced"
"""It does not know this shape's number, or not any more."""
NO_RIGHT: Final = "no_right"
"""The token does not allow it, or has ended."""
RULES: Final = "rules"
"""Its owner's own rules: users, drivers, images, keys."""
UNSUITABLE: Final = "unsuitable"
"""It cannot run such tasks: it serves the model no more, or never had what they need."""
PRICE: Final = "price"
"""It would ask more than the task may cost."""


class Scope(Enum):
    """What a refusal says of other tasks for the same worker."""

    NOW = auto()
    """Of this shape, until there is room."""
    SHAPE = auto()
    """Of this shape, for a while."""
    USER = auto()
    """Of this user, for a while."""
    WORKER = auto()
    """Of all, until it says otherwise."""
    NOTHING = auto()
    """They can be sent again at once."""


_SCOPES: Final = {
    NO_ROOM: Scope.NOW,
    CLOSED: Scope.WORKER,
    LEASE_OVER: Scope.NOTHING,
    NOT_INTRODUCED: Scope.NOTHING,
    NO_RIGHT: Scope.USER,
    RULES: Scope.SHAPE,
    UNSUITABLE: Scope.SHAPE,
    PRICE: Scope.SHAPE,
}


def scope_of(code: str) -> Scope:
    """A code that a later version has added says as much as can be said of a shape."""
    return _SCOPES.get(code, Scope.SHAPE)
