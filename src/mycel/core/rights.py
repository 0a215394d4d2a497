"""What a token allows, and whether that covers what somebody asks for.

Signatures are checked elsewhere; here are the facts. A token's end and its revocation change
while the token does not, so that they are asked for with the time and the set of the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

import msgspec

from mycel.core.model.work import DEFAULT_USER, Shape

from .identifiers import PeerId

SUBMIT: Final = "submit"
READ: Final = "read"
CANCEL: Final = "cancel"
ADMIN: Final = "admin"
ACTIONS: Final = (SUBMIT, READ, CANCEL, ADMIN)
"""`admin` also sees and touches what is others' own."""
CAPS: Final = ("cpu_cores", "memory", "disk", "gpus", "price")
"""What one task may ask for at the most, and what it may cost."""
TOLERANCE_SECONDS: Final = 60.0
"""Granted beyond a token's end: machines' clocks differ."""


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    swarm: str = ""
    user: str = ""
    """Empty: it speaks for nobody."""
    roles: frozenset[str] = frozenset()
    actions: frozenset[str] = frozenset()
    priority_max: int | None = None
    caps: tuple[tuple[str, float], ...] = ()
    cluster: str = ""
    expires_at: float | None = None
    """Unix time."""
    revocation_ids: tuple[bytes, ...] = ()
    """One for each block: whichever is revoked, this is."""
    signer: str = ""
    """The public key that vouches, as hex: the owner's, or one that the owner delegated to."""
    is_bound: bool = False
    """It is good for one peer alone."""
    invite: str = ""
    """The serial of the invite that it stems from, as hex."""
    joins: int | None = None
    """How many may join by that invite."""
    admitted_by: str = ""
    """The public key of the gateway that made its peer a member by that invite, as hex."""

    @property
    def machine_user(self) -> str:
        """Whose machine a node with this token is: empty for one of an invite that does not say.
        The owner names its own nodes, and invites strangers."""
        return self.user or ("" if self.invite else DEFAULT_USER)

    def is_over(self, unix: float) -> bool:
        return self.expires_at is not None and unix >= self.expires_at + TOLERANCE_SECONDS

    def is_revoked(self, revoked: Container[bytes]) -> bool:
        return any(one in revoked for one in self.revocation_ids)

    def objection(self, shape: Shape) -> str | None:
        """Why this token does not allow such tasks; None if it does."""
        if not self.user or shape.user != self.user:
            return f"its token is not of the user {shape.user!r}"
        if SUBMIT not in self.actions:
            return "its token does not allow to submit"
        if self.priority_max is not None and shape.priority > self.priority_max:
            return f"its token allows priorities up to {self.priority_max}, not {shape.priority}"
        return self._over_cap(shape)

    def _over_cap(self, shape: Shape) -> str | None:
        asked = shape.requirements
        wanted = {
            "cpu_cores": asked.cpu_cores,
            "memory": asked.min_memory,
            "disk": asked.disk,
            "gpus": asked.gpus.count if asked.gpus is not None else 0,
        }
        for name, most in self.caps:
            if name == "price" and (shape.max_cost is None or shape.max_cost > most):
                return f"its token allows a price up to {most:.16g}: give it a max_cost within that"
            if wanted.get(name, 0) > most:
                return f"its token allows {name} up to {most:.16g}, not {wanted[name]:.16g}"
        return None


Inspect = Callable[[bytes, PeerId], Rights | str]
"""What a token says that this peer presents, or why it is not good. A function of its arguments
alone, as a digest is."""
