"""Identities and tokens, good and bad."""

from __future__ import annotations

import os
import time
from typing import Final, NamedTuple

from mycel._native import identity
from mycel.access.tokens import Statement, issue
from mycel.core.identifiers import PeerId

SWARM_NAME: Final = "fuzz"
HOUR: Final = 3600
HELLO_PROTOCOL: Final = "/mycel/hello/1"
HELLO_VERSION: Final = 2


class Who(NamedTuple):
    seed: bytes
    peer: PeerId


def somebody() -> Who:
    seed = os.urandom(32)
    return Who(seed, identity(seed)[1])


class Owner:
    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self.public = identity(self._secret)[0]

    def token(self, peer: PeerId, lifetime_seconds: int = HOUR, role: str = "worker") -> bytes:
        expires_at = time.time() + lifetime_seconds
        grant = Statement(roles=(role,), expires_at=expires_at, peer=peer)
        return issue(self._secret, SWARM_NAME, grant)


def hello_block(token: bytes) -> bytes:
    """What a node tells of itself in the hello: tag, length, value. The rest may be left away."""
    return b"\x01" + len(token).to_bytes(2, "big") + token


def hello(token: bytes) -> bytes:
    """What a dialer says first: version, length, block."""
    block = hello_block(token)
    return bytes([HELLO_VERSION]) + len(block).to_bytes(2, "big") + block


YES: Final = bytes([0, 0, 0])
"""What a dialer says last."""
