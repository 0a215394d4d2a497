"""The tokens of a simulated swarm: facts without signatures, which nobody here forges.

One user submits everything. Its token ends, is revoked, or allows less than its jobs ask for;
after a while it comes with a better one, as a user does who was told so.
"""

from __future__ import annotations

from random import Random

import msgspec

from mycel.core.identifiers import PeerId
from mycel.core.rights import SUBMIT, TOLERANCE_SECONDS, Rights

USER = "owner"


class _Token(msgspec.Struct, frozen=True):
    rights: Rights
    peer: str = ""


class Tokens:
    """Whoever gives the user its tokens."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._serial = 0
        self.revoked: set[bytes] = set()
        """By the owner; workers hear of it by and by."""
        self.current = self._issue()

    @property
    def rights(self) -> Rights:
        """Of the token that the user has now."""
        return msgspec.msgpack.decode(self.current, type=_Token).rights

    def renew(self) -> None:
        """A token without an end, for everything."""
        self.current = self._issue()

    def weaken(self, unix: float) -> None:
        """What the user has is revoked, and may be replaced by less."""
        self.revoked.add(self.rights.revocation_ids[0])
        kind = self._random.choice(("nothing", "expiring", "narrow"))
        if kind == "expiring":
            ends_at = unix + self._random.uniform(0.5, 15.0)
            self.current = self._issue(expires_at=ends_at - TOLERANCE_SECONDS)
        elif kind == "narrow":
            self.current = self._issue(priority_max=0)

    def _issue(self, expires_at: float | None = None, priority_max: int | None = None) -> bytes:
        self._serial += 1
        rights = Rights(
            user=USER,
            actions=frozenset({SUBMIT}),
            priority_max=priority_max,
            expires_at=expires_at,
            revocation_ids=(self._serial.to_bytes(4, "big"),),
        )
        return msgspec.msgpack.encode(_Token(rights))


def bind(token: bytes, peer: PeerId) -> bytes:
    found = msgspec.msgpack.decode(token, type=_Token)
    rights = msgspec.structs.replace(found.rights, is_bound=True)
    return msgspec.msgpack.encode(_Token(rights, peer))


def inspect(token: bytes, peer: PeerId) -> Rights | str:
    found = msgspec.msgpack.decode(token, type=_Token)
    return found.rights if found.peer == peer else "its token is another peer's"
