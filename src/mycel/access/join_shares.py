"""How many may join at which gateways of an invite.

Gateways that share a home folder keep one count: they are one *place*. Others cannot ask each
other, so that the number is split between the places.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from mycel.swarm.multiaddress import peer_in

from .errors import AccessError
from .tokens import Terms, native

JOINS_MAX: Final = 1_000_000
SERIAL_BYTES: Final = 16


class SharesRefused(AccessError):
    """So many cannot join there; the message says what to do."""


class Place(msgspec.Struct, frozen=True):
    gateways: tuple[str, ...]
    joins: int


class Shares(msgspec.Struct, frozen=True):
    terms: Terms
    gateways: tuple[str, ...]
    """Addresses of those that may admit somebody."""

    @property
    def places(self) -> list[Place]:
        """For whoever wants to see the split."""
        keys = dict(self.terms.gateways)
        by_place: dict[int, list[str]] = {}
        for address in self.gateways:
            by_place.setdefault(keys[_key_of(address)], []).append(address)
        return [
            Place(tuple(addresses), self.terms.joins.get(place, 0))
            for place, addresses in sorted(by_place.items())
        ]


def shared_out(addresses: Sequence[str], own_peers: Collection[str], joins: int) -> Shares:
    """By the owner. Each address ends in its gateway's peer id; `own_peers` are of one home."""
    places: dict[object, int] = {}
    gateways: dict[bytes, int] = {}
    for address in addresses:
        peer = peer_in(address)
        home = "here" if peer in own_peers else peer
        gateways[_key_of(address)] = places.setdefault(home, len(places))
    return _shares(addresses, gateways, _split(joins, dict.fromkeys(places.values(), joins)))


def shared_on(addresses: Sequence[str], given: Terms, joins: int) -> Shares:
    """By a delegate, out of what it was given: at those gateways, and no more at any place. How
    many of them have joined already, only the gateways know."""
    keys = dict(given.gateways)
    known = [address for address in addresses if _key_of(address) in keys]
    if not known:
        raise SharesRefused(
            "the delegation names none of the gateways that this home knows: say where one of "
            "those is that it names, with --gateway /ip4/ADDRESS/tcp/PORT/p2p/PEER"
        )
    gateways = {_key_of(address): keys[_key_of(address)] for address in known}
    room = {place: given.joins.get(place, 0) for place in gateways.values()}
    if joins > sum(room.values()):
        raise SharesRefused(
            f"the delegation lets {sum(room.values())} join at these gateways, not {joins}: ask "
            "the owner for another one"
        )
    return _shares(known, gateways, _split(joins, room))


def _split(joins: int, room: dict[int, int]) -> dict[int, int]:
    """As evenly as there is room, the first places first."""
    if not 1 <= joins <= JOINS_MAX:
        raise SharesRefused(f"from 1 to {JOINS_MAX} can join by one invite, not {joins}")
    split = dict.fromkeys(room, 0)
    left = joins
    while left:
        open_places = [place for place in split if split[place] < room[place]]
        each, rest = divmod(left, len(open_places))
        for number, place in enumerate(open_places):
            more = min(each + (number < rest), room[place] - split[place])
            split[place] += more
            left -= more
    return split


def _shares(addresses: Sequence[str], gateways: dict[bytes, int], split: dict[int, int]) -> Shares:
    used = {place: joins for place, joins in split.items() if joins}
    named = tuple((key, place) for key, place in gateways.items() if place in used)
    keys = {key for key, _ in named}
    kept = tuple(address for address in addresses if _key_of(address) in keys)
    return Shares(Terms(os.urandom(SERIAL_BYTES), named, used), kept)


def _key_of(address: str) -> bytes:
    peer = peer_in(address)
    if peer is None:
        raise SharesRefused(
            f"the gateway {address!r} has to be named with its peer id, by which it admits: write "
            f"{address}/p2p/PEER"
        )
    key: bytes = native().public_key_of(peer)
    return key
