"""What two nodes say to each other on a blob stream: one stream for each blob.

    Get ─▶ Found ──── Piece ─▶ data … ──── Piece ─▶ data …          then the asker closes
        └▶ Elsewhere, Refused

    Put ─▶ Wanted ◀── Piece ─▶ data … ──▶ Kept                      the other end does the asking
        └▶ Kept, Refused

Whoever receives asks for one piece after another, so that it decides how much is under way, and
begins where an earlier transfer broke off. The answer to a `Piece` is as many plain frames as it
takes. Fields are only ever added at the end, with a default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from mycel.core.ranges import FEW, Addresses, Finite, Name, Reason, Size, Token, Word

if TYPE_CHECKING:
    from mycel._native import Slice

BLOB_PROTOCOL: Final = "/mycel/blob/1"
FRAME_BYTES: Final = 128 << 10
"""Small enough to stay in the processor's cache on its way through five buffers."""
FRAME_BYTES_MAX: Final = 1 << 20
WRITE_HIGH_BYTES: Final = 2 << 20
"""So little waits to be sent: the buffers are used again, and nobody holds much for a peer."""
PIECE_BYTES: Final = 4 << 20
PIECES_AHEAD: Final = 2
"""Asked for before the first of them is here."""


class BlobMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of them all."""


class Get(BlobMessage, frozen=True, tag="get"):
    digest: Name
    attempt: Size = 0
    """By what right: an assignment that the asker holds, …"""
    ticket: Token = b""
    """… or what the scheduler gave it to show to another worker."""
    ends_at: Finite = 0.0
    """The ticket's end, in Unix time."""
    key: Token = b""
    """From a worker to its scheduler: tickets that are made with it will open its own cache."""
    insist: bool = False
    """Not elsewhere: that was tried."""


class Put(BlobMessage, frozen=True, tag="put"):
    digest: Name
    size: Size
    attempt: Size
    """Whose output it is."""
    is_list: bool = False
    """The list of all outputs of that attempt, after all of them."""
    keep: Word = ""
    """`worker`: the files of the list stay with their worker."""
    key: Token = b""
    """As in `Get`."""


class Found(BlobMessage, frozen=True, tag="found"):
    size: Size


class Place(msgspec.Struct, frozen=True, array_like=True):
    peer: Name
    addresses: Addresses
    ticket: Token
    ends_at: Finite


class Elsewhere(BlobMessage, frozen=True, tag="elsewhere"):
    places: Annotated[tuple[Place, ...], FEW]


class Wanted(BlobMessage, frozen=True, tag="wanted"):
    """Be ready to be asked for it."""


class Kept(BlobMessage, frozen=True, tag="kept"):
    """It is on disk."""


class Refused(BlobMessage, frozen=True, tag="refused"):
    reason: Reason
    again: bool = False
    """Another try may help."""
    gone: bool = False
    """It was there once, perhaps, and is not any more."""


class Piece(BlobMessage, frozen=True, tag="piece"):
    offset: Size
    length: Size


Message = Get | Put | Found | Elsewhere | Wanted | Kept | Refused | Piece

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


class Unreadable(Exception):
    """The peer's fault: this is no message of a blob stream."""


def encode(message: BlobMessage) -> bytes:
    return _encoder.encode(message)


def decode(frame: bytes | Slice) -> Message:
    try:
        return _decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"not a message of a blob stream: {error}") from error
