"""What a swarm may be asked to carry: checked before it leaves the caller."""

from __future__ import annotations

from collections.abc import Collection

from mycel.swarm.errors import FrameTooLong, InvalidSetting
from mycel.swarm.interface import (
    GOSSIP_BYTES_MAX,
    KEY_BYTES_MAX,
    PROVIDED_KEYS_MAX,
    RECORD_BYTES_MAX,
)


def check_gossip(data: bytes) -> None:
    if len(data) > GOSSIP_BYTES_MAX:
        raise FrameTooLong(
            f"a message of {len(data)} bytes is over gossip's limit of {GOSSIP_BYTES_MAX}"
        )


def check_record(payload: bytes, sequence: int) -> None:
    if len(payload) > RECORD_BYTES_MAX:
        raise FrameTooLong(
            f"a record of {len(payload)} bytes is over the limit of {RECORD_BYTES_MAX}"
        )
    if not 0 <= sequence < 1 << 63:
        raise InvalidSetting(f"{sequence} is no sequence of a record")


def check_key(key: bytes) -> None:
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise InvalidSetting(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(key)}")


def check_provided(key: bytes, provided: Collection[bytes]) -> None:
    check_key(key)
    if key not in provided and len(provided) >= PROVIDED_KEYS_MAX:
        raise InvalidSetting(f"a node provides at most {PROVIDED_KEYS_MAX} keys")
