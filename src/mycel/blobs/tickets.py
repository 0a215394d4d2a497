"""What lets a worker take a blob from another worker's cache.

The holder made the key and gave it to its scheduler alone; the scheduler says with it: this peer
may have this blob until then. Nobody else can make a ticket, and nobody else can use it, since
the holder knows with whom it speaks.
"""

from __future__ import annotations

import hmac
import os
from typing import Final

from blake3 import blake3

KEY_BYTES: Final = 32
TICKET_SECONDS: Final = 3600.0


def new_key() -> bytes:
    return os.urandom(KEY_BYTES)


def ticket(key: bytes, digest: str, peer: str, ends_at: float) -> bytes:
    said = f"mycel blob ticket\n{digest}\n{peer}\n{ends_at!r}".encode()
    return blake3(said, key=key).digest()


def is_good(
    key: bytes, digest: str, peer: str, ends_at: float, shown: bytes, unix_time: float
) -> bool:
    made = ticket(key, digest, peer, ends_at)
    return unix_time < ends_at and hmac.compare_digest(made, shown)
