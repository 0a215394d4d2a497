"""Roles as membership tokens carry them: one bit each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ROLE_BITS: Final = {"gateway": 1, "scheduler": 2, "worker": 4, "cluster": 8}


def mask_of(roles: Iterable[str]) -> int:
    """Raises `KeyError` for a role that does not exist."""
    mask = 0
    for role in roles:
        mask |= ROLE_BITS[role]
    return mask


def roles_of(mask: int) -> frozenset[str]:
    """Bits that this version does not know are passed over, so that versions can mix."""
    return frozenset(role for role, bit in ROLE_BITS.items() if mask & bit)
