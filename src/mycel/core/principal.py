"""Who answers for a peer, by its token: whose machine it is, and with whom it shares limits.

A limit per peer is worth little against somebody with many identities. So each has a second one
for all who joined by one invite: as many times a member's as the square root of how many may join.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mycel.core.model.work import DEFAULT_USER

from .identifiers import PeerId


class Family(msgspec.Struct, frozen=True):
    """Whoever joined by one invite, or by all invites of one delegation."""

    serial: bytes
    shares: int
    """How many members' limits they have together."""


class Principal(msgspec.Struct, frozen=True):
    user: str = DEFAULT_USER
    """Whose machine it is; empty: its token does not say. The owner names its own nodes."""
    family: Family | None = None


def accounts(peer: PeerId, family: Family | None, limit: int) -> Iterator[tuple[str, int]]:
    """What is counted for the peer is counted on each of these, and none may exceed its limit."""
    yield peer, limit
    if family is not None:
        yield family.serial.hex(), limit * family.shares


class Tally:
    """How many places of one kind peers hold at once, alone and with their families."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[str, int] = {}

    def has_room(self, peer: PeerId, family: Family | None, size: int = 1) -> bool:
        held = self._held
        return all(
            held.get(account, 0) + size <= most
            for account, most in accounts(peer, family, self._limit)
        )

    def take(self, peer: PeerId, family: Family | None, size: int = 1) -> None:
        for account, _ in accounts(peer, family, self._limit):
            self._held[account] = self._held.get(account, 0) + size

    def give_back(self, peer: PeerId, family: Family | None, size: int = 1) -> None:
        """Of what was taken for them."""
        if not size:
            return
        for account, _ in accounts(peer, family, self._limit):
            self._held[account] -= size
            if not self._held[account]:
                del self._held[account]
