"""Secrets of clusters: made here, shown once, kept as hashes.

They are 256 random bits, so one round of a hash is enough: there is no dictionary to try.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from blake3 import blake3

from mycel.core.federation.registration import HashedSecret

TOKEN_PREFIX: Final = "mycel-cluster-token-"  # noqa: S105 - what tokens begin with
SECRET_PREFIX: Final = "mycel-cluster-secret-"  # noqa: S105 - likewise
REGISTRATION_PREFIX: Final = "mycel-cluster-registration-"
_CONTEXT: Final = b"mycel cluster secret 1\0"


def make(prefix: str, expires_at: float = 0.0) -> tuple[str, HashedSecret]:
    text = prefix + secrets.token_urlsafe(32)
    return text, HashedSecret(_hash(text), expires_at)


def problem_with(text: str, kept: HashedSecret | None, now: float, what: str = "token") -> str:
    """What is wrong with a secret that somebody shows; empty if it is good."""
    if kept is None or not hmac.compare_digest(_hash(text), kept.digest):
        return f"the {what} is not valid for it"
    if kept.expires_at and now >= kept.expires_at:
        return f"the {what} has expired; ask for a new one"
    return ""


def _hash(text: str) -> str:
    return blake3(_CONTEXT + text.encode(errors="replace")).hexdigest()
