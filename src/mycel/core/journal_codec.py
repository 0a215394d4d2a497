"""How the core's own records stand in the journal's columns."""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.core.model.jobs import Specification
from mycel.core.model.stages import Stage
from mycel.core.model.work import Shape

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What reading one back can raise: a disk, or another version, may have made it so."""

_encoder: Final = msgspec.msgpack.Encoder()
_shapes: Final = msgspec.msgpack.Decoder(Shape)
_stages: Final = msgspec.msgpack.Decoder(tuple[Stage, ...])
_specifications: Final = msgspec.msgpack.Decoder(Specification)


def encode_shape(shape: Shape) -> bytes:
    return _encoder.encode(shape)


def decode_shape(data: bytes) -> Shape:
    return _shapes.decode(data)


def encode_stages(stages: tuple[Stage, ...]) -> bytes:
    return _encoder.encode(stages) if stages else b""


def decode_stages(data: bytes) -> tuple[Stage, ...]:
    return _stages.decode(data) if data else ()


def encode_specification(specification: Specification) -> bytes:
    return _encoder.encode(specification)


def decode_specification(data: bytes) -> Specification:
    return _specifications.decode(data)
