"""The blocks of a token as they are signed, read without a key.

A revocation names a block by its signature's digest. The extension tells these ids of tokens
that grant something; a delegation grants nothing to whoever presents it, is refused there, and
must be revoked all the same.

    Biscuit      2: authority block   3: further blocks, each
    SignedBlock  3: signature
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from blake3 import blake3

from .errors import TokenMistyped

_AUTHORITY: Final = 2
_BLOCK: Final = 3
_SIGNATURE: Final = 3
_VARINT: Final = 0
_BYTES: Final = 2


def revocation_ids(token: bytes) -> list[bytes]:
    """Of each block, the first one first."""
    signed = [value for number, value in _fields(token) if number in (_AUTHORITY, _BLOCK)]
    signatures = [
        value for block in signed for number, value in _fields(block) if number == _SIGNATURE
    ]
    if not signed or len(signatures) != len(signed):
        raise _damaged()
    return [blake3(signature).digest() for signature in signatures]


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a protobuf message; numbers are passed over."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        value, place = _varint(message, place)
        if tag & 7 == _BYTES:
            end = place + value
            if end > len(message):
                raise _damaged()
            yield tag >> 3, message[place:end]
            place = end
        elif tag & 7 != _VARINT:
            raise _damaged()


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message) and shift < 64:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise _damaged()


def _damaged() -> TokenMistyped:
    return TokenMistyped("this token is damaged: copy the whole of it")
