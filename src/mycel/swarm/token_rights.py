"""What the native extension tells of a token, as `Rights`. Roles are one bit each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mycel.core.rights import Rights

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


def rights_of(described: tuple[Any, ...]) -> Rights:
    """From what the native extension tells of a token."""
    (
        swarm,
        user,
        roles,
        actions,
        priority_max,
        caps,
        cluster,
        expires_at,
        revocation_ids,
        signer,
        is_bound,
        invite,
    ) = described
    serial, joins, admitted_by = invite or (b"", None, None)
    return Rights(
        swarm=swarm,
        user=user or "",
        roles=roles_of(roles),
        actions=frozenset(actions),
        priority_max=priority_max,
        caps=tuple((name, most / 1000) for name, most in sorted(caps.items())),
        cluster=cluster or "",
        expires_at=None if expires_at is None else float(expires_at),
        revocation_ids=tuple(revocation_ids),
        signer=signer.hex(),
        is_bound=is_bound,
        invite=serial.hex(),
        joins=joins,
        admitted_by=(admitted_by or b"").hex(),
    )
