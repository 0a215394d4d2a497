"""Who is where: with gateways on the control stream, by gossip, and between any two nodes on a
signal stream."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mycel.core.ranges import MANY, Addresses, Name, Names, Ordinal, Size

from .message import Message

# Between any node and a gateway, on the control stream


class PeerRecord(msgspec.Struct, frozen=True, array_like=True):
    peer: Name
    roles: Names
    addresses: Addresses


class Join(Message, frozen=True, tag="join"):
    version: Ordinal
    me: PeerRecord


class Peers(Message, frozen=True, tag="peers"):
    peers: Annotated[list[PeerRecord], MANY]


class Announcement(Message, frozen=True, tag="announcement"):
    """Gossip: a scheduler says where it is."""

    me: PeerRecord
    sequence: Size = 0
    """Makes each one different: gossip drops what it has seen within the last minute."""


# Between any two nodes, on a signal stream


class Ping(Message, frozen=True, tag="ping"):
    """Answered at once, so that the way there and back can be measured."""

    number: Size


class Pong(Message, frozen=True, tag="pong"):
    number: Size


class Summons(Message, frozen=True, tag="summons"):
    """A scheduler wants a link with this worker, now."""
