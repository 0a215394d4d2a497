"""Limits that peers have alone, and together with those who joined by the same invite."""

from __future__ import annotations

from mycel.core.identifiers import PeerId
from mycel.core.principal import Family, Tally

FAMILY = Family(b"1" * 16, 2)
OTHERS = Family(b"2" * 16, 2)
PEERS = [PeerId(f"peer-{number}") for number in range(5)]


def test_one_peer_has_its_own_limit_however_many_shares_its_family_has() -> None:
    tally = Tally(3)
    tally.take(PEERS[0], FAMILY, 3)
    assert not tally.has_room(PEERS[0], FAMILY)
    assert tally.has_room(PEERS[1], FAMILY, 3)


def test_a_family_has_its_shares_of_it_however_many_they_are() -> None:
    tally = Tally(3)
    for peer in PEERS[:3]:
        tally.take(peer, FAMILY, 2)
    assert not tally.has_room(PEERS[3], FAMILY)
    assert tally.has_room(PEERS[3], OTHERS, 3)
    assert tally.has_room(PEERS[3], None, 3)


def test_what_is_given_back_is_there_for_the_others() -> None:
    tally = Tally(3)
    for peer in PEERS[:3]:
        tally.take(peer, FAMILY, 2)
    tally.give_back(PEERS[0], FAMILY, 2)
    assert tally.has_room(PEERS[3], FAMILY, 2)
    assert not tally.has_room(PEERS[3], FAMILY, 3)
