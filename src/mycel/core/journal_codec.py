"""How the core's own records stand in the journal's columns."""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.core.model.jobs import Specification
from mycel.core.model.stages import Stage

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What reading one back can raise: a disk, or another version, may have made it so."""

_encoder: Final = msgspec.msgpack.Encoder()
_stages: Final = msgspec.msgpack.Decoder(tuple[Stage, ...])
_specifications: Final = msgspec.msgpack.Decoder(Specification)


def encode_stages(stages: tuple[Stage, ...]) -> bytes:
    return _encoder.encode(stages) if stages else b""


def decode_stages(data: bytes) -> tuple[Stage, ...]:
    return _stages.decode(data) if data else ()


def encode_specification(specification: Specification) -> bytes:
    return _encoder.encode(specification)


def decode_specification(data: bytes) -> Specification:
    return _specifications.decode(data)
