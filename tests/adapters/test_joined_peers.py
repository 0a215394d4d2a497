"""Who has joined a gateway, and what newcomers hear of them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.identifiers import PeerId
from mycel.core.principal import Family
from mycel.membership import peer_list
from mycel.membership.peer_list import JoinedPeers

NOBODY = PeerId("nobody")
WORKER = frozenset({"worker"})
SCHEDULER = frozenset({"scheduler"})
_PEERS = st.sampled_from([PeerId(name) for name in "abcdef"])


def sampled(people: JoinedPeers, count: int, besides: PeerId = NOBODY) -> list[str]:
    return [record.peer for record in people.sample(count, besides)]


@given(
    st.lists(st.tuples(_PEERS, st.sampled_from([WORKER, SCHEDULER, None])), max_size=30),
    _PEERS,
    st.integers(0, 8),
)
def test_a_sample_is_of_those_who_are_there(
    happened: list[tuple[PeerId, frozenset[str] | None]], asker: PeerId, count: int
) -> None:
    people = JoinedPeers(Random(1))
    there: dict[PeerId, frozenset[str]] = {}
    for peer, roles in happened:
        if roles is None:
            assert people.leave(peer) == (there.pop(peer, None) is not None)
        else:
            assert people.enter(peer, roles, ()) == (peer not in there)
            there[peer] = roles
    found = people.sample(count, asker)
    others = {peer: roles for peer, roles in there.items() if peer != asker}
    assert len({record.peer for record in found}) == len(found) == min(count, len(others))
    assert all(record.roles == tuple(others[PeerId(record.peer)]) for record in found)
    first = [record.roles == ("scheduler",) for record in found]
    assert first == sorted(first, reverse=True)
    assert sum(first) == min(count, sum(roles == SCHEDULER for roles in others.values()))


def test_everybody_is_named_now_and_then() -> None:
    people = JoinedPeers(Random(1))
    for number in range(50):
        people.enter(PeerId(str(number)), WORKER, ())
    assert {peer for _ in range(100) for peer in sampled(people, 5)} == set(map(str, range(50)))


class CountingRandom(Random):
    drawn = 0

    def getrandbits(self, k: int, /) -> int:
        self.drawn += 1
        return super().getrandbits(k)


def test_a_sample_of_thousands_costs_what_it_is_long() -> None:
    random = CountingRandom(1)
    people = JoinedPeers(random)
    for number in range(5_000):
        people.enter(PeerId(str(number)), WORKER, ())
    assert len(sampled(people, 60)) == 60
    assert random.drawn < 5 * 60


def test_a_full_roster_takes_nobody_else_and_lets_its_own_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_list, "PEERS_MAX", 1)
    people = JoinedPeers(Random(1))
    assert people.enter(PeerId("a"), WORKER, ("/ip4/10.0.0.1/tcp/1",))
    assert not people.enter(PeerId("b"), WORKER, ())
    assert not people.enter(PeerId("a"), WORKER, ("/ip4/10.0.0.2/tcp/1",))
    assert [record.addresses for record in people.records] == [("/ip4/10.0.0.2/tcp/1",)]


def test_those_of_one_invite_are_drawn_as_often_as_they_have_shares() -> None:
    people, family = JoinedPeers(Random(1)), Family(b"1" * 16, 2)
    crowd = [PeerId(f"crowd-{number}") for number in range(50)]
    for peer in crowd:
        people.enter(peer, WORKER, (), family)
    people.enter(PeerId("another"), WORKER, ())
    assert sampled(people, 50).count("another") == 1
    assert len(sampled(people, 50)) == 3
    for peer in crowd[:49]:
        people.leave(peer)
    assert sorted(sampled(people, 50)) == ["another", "crowd-49"]
