"""Invites: what they bring to a new machine, and what is said of bad ones."""

from __future__ import annotations

import contextlib
import stat
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.access import invites, tokens
from mycel.access.errors import InviteMistyped, InviteUnusable, SecretExists, TokenMistyped
from mycel.access.founder import Founder, found, owner_public_of
from mycel.access.home import Home, RoleFolder, read_state
from mycel.access.invites import Invite, Joined
from mycel.access.join_shares import SharesRefused, shared_on, shared_out
from mycel.access.token_blocks import revocation_ids
from mycel.access.tokens import Statement

GATEWAY = "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWL4Kx6Qn3n4zdAgSPvH3zgJhzGXegscK9VnveXeDYmHU1"


@pytest.fixture
def founder(tmp_path: Path) -> Founder:
    return found(Home(tmp_path / "owner"), "test")


def an_invite(founder: Founder, seconds: float = 3600.0, **changes: object) -> Invite:
    terms = shared_out([GATEWAY], [], 1).terms
    grant = Statement(roles=("worker", "gateway"), expires_at=time.time() + seconds, invite=terms)
    token = tokens.issue(founder.secret, founder.swarm, grant)
    invite = Invite(founder.swarm, (GATEWAY,), founder.public, token)
    return msgspec.structs.replace(invite, **changes)


def fresh(tmp_path: Path) -> tuple[Home, RoleFolder]:
    home = Home(tmp_path / "guest")
    return home, home.role("worker")


def test_one_string_is_all_that_a_new_machine_needs(tmp_path: Path, founder: Founder) -> None:
    text = invites.to_text(an_invite(founder))
    home, folder = fresh(tmp_path)
    found = invites.from_text(f"  {text[:50]}\n{text[50:]} ")
    application = invites.redeem(found, home, folder, "worker")
    assert application is not None
    assert owner_public_of(home) == founder.public
    peer = tokens.native().identity(bytes.fromhex(folder.identity_path.read_text()))[1]
    rights = tokens.inspect(founder.public, application.token, peer)
    assert (rights.roles, rights.is_bound) == (frozenset({"worker"}), True)
    assert (rights.joins, rights.admitted_by) == (1, "")
    # It is no member before a gateway has admitted it.
    assert not folder.member_token_path.exists()
    assert read_state(folder.joined_path, Joined) is None
    application.accept(folder, b"from the gateway")
    assert tokens.load_member_token(folder.member_token_path) == b"from the gateway"
    assert read_state(folder.joined_path, Joined) == Joined("test", (GATEWAY,))
    for path in (folder.member_token_path, folder.identity_path, home.owner_public_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not home.owner_key_path.exists()


def test_gateways_of_a_kind_that_is_not_known_here_are_left_out(
    tmp_path: Path, founder: Founder
) -> None:
    home, folder = fresh(tmp_path)
    later = "/ip4/127.0.0.1/udp/4001/webtransport"
    found = invites.redeem(an_invite(founder, gateways=(later, GATEWAY)), home, folder, "worker")
    assert found is not None
    assert found.joined == Joined("test", (GATEWAY,))
    nowhere, unstarted = Home(tmp_path / "nowhere"), Home(tmp_path / "nowhere").role("worker")
    with pytest.raises(InviteUnusable, match=r"no gateway that can be reached.*webtransport"):
        invites.redeem(an_invite(founder, gateways=(later,)), nowhere, unstarted, "worker")
    assert not nowhere.path.exists()


def test_a_node_of_a_swarm_on_more_machines_listens_for_the_others() -> None:
    here = Joined("test", (GATEWAY, "/ip6/::1/tcp/4001"))
    assert here.settings() == {"swarm.name": "test", "swarm.bootstrap": list(here.gateways)}
    away = Joined("test", (GATEWAY, GATEWAY.replace("127.0.0.1", "10.0.0.1")))
    assert away.settings()["swarm.listen"] == ["/ip4/0.0.0.0/tcp/0"]


def test_every_way_to_give_one(tmp_path: Path, founder: Founder) -> None:
    invite = an_invite(founder)
    text = invites.to_text(invite)
    path = tmp_path / "invite.txt"
    path.write_text(text + "\n")
    assert invites.read(text) == invites.read(str(path)) == invite


def test_whatever_is_mistyped_is_told_apart_from_what_is_old(founder: Founder) -> None:
    text = invites.to_text(an_invite(founder))
    for cut in (5, 20, len(text) // 2, len(text) - 1):
        with pytest.raises(InviteMistyped):
            invites.from_text(text[:cut])
    for at in range(20, len(text), 17):
        wrong = "A" if text[at] != "A" else "B"
        with pytest.raises(InviteMistyped) as told:
            invites.from_text(text[:at] + wrong + text[at + 1 :])
        assert text[30:60] not in str(told.value)
    for nonsense in ("", "hello", "mycel_abc", "mycel-invite-2.", "mycel-invite-x.abc"):
        with pytest.raises(InviteMistyped):
            invites.from_text(nonsense)
    with pytest.raises(InviteUnusable, match="version 1"):
        invites.from_text(text.replace("invite-2", "invite-1"))


def test_what_cannot_be_redeemed(tmp_path: Path, founder: Founder) -> None:
    home, folder = fresh(tmp_path)
    stranger = found(Home(tmp_path / "stranger"), "test")
    bound = tokens.bind(founder.public, an_invite(founder).token, "12D3KooWSomebody")
    bare = tokens.issue(founder.secret, "test", Statement(roles=("worker",)))
    for invite, role, reason in (
        (an_invite(founder, -120), "worker", "has expired"),
        (an_invite(founder), "scheduler", "for gateway, worker, not for a scheduler"),
        (an_invite(founder, owner_public=stranger.public), "worker", "not signed"),
        (an_invite(founder, swarm="other"), "worker", "contradicts itself"),
        (an_invite(founder, token=bound), "worker", "contradicts itself"),
        (an_invite(founder, token=bare), "worker", "contradicts itself"),
        (an_invite(founder, gateways=()), "worker", "names no gateway"),
        (an_invite(founder, token=b"nonsense"), "worker", "not good"),
    ):
        with pytest.raises(InviteUnusable, match=reason):
            invites.redeem(invite, home, folder, role)
    assert not folder.member_token_path.exists()


def test_a_member_starts_again_with_its_old_invite(tmp_path: Path, founder: Founder) -> None:
    home, folder = fresh(tmp_path)
    application = invites.redeem(an_invite(founder), home, folder, "worker")
    assert application is not None
    peer = tokens.native().identity(bytes.fromhex(folder.identity_path.read_text()))[1]
    application.accept(folder, founder.member_token(peer, ("worker",)))
    assert invites.redeem(an_invite(founder, -120), home, folder, "worker") is None


def test_one_home_has_one_owner(tmp_path: Path, founder: Founder) -> None:
    home, folder = fresh(tmp_path)
    invites.redeem(an_invite(founder), home, folder, "worker")
    stranger = found(Home(tmp_path / "stranger"), "test")
    with pytest.raises(SecretExists, match="two homes"):
        invites.redeem(an_invite(stranger), home, folder, "worker")


# How many may join where


def a_gateway(number: int) -> str:
    peer = tokens.native().identity(bytes([number]) * 32)[1]
    return f"/ip4/10.0.0.{number}/tcp/4001/p2p/{peer}"


def test_gateways_of_one_home_count_together_and_others_split() -> None:
    ways = [a_gateway(number) for number in range(1, 5)]
    here = {way.rpartition("/")[2] for way in ways[:2]}
    shares = shared_out(ways, here, 7)
    assert [(place.gateways, place.joins) for place in shares.places] == [
        (tuple(ways[:2]), 3),
        ((ways[2],), 2),
        ((ways[3],), 2),
    ]
    assert shares.terms.total == 7
    alone = shared_out(ways, here, 1)
    assert alone.gateways == tuple(ways[:2]), "the others could admit nobody"
    assert alone.terms.serial != shared_out(ways, here, 1).terms.serial


@given(st.integers(1, 300), st.lists(st.integers(1, 3), min_size=1, max_size=6))
def test_the_places_have_in_all_what_the_invite_allows(joins: int, homes: list[int]) -> None:
    ways = [a_gateway(number + 1) for number in range(len(homes))]
    here = [way.rpartition("/")[2] for way, home in zip(ways, homes, strict=True) if home == 1]
    shares = shared_out(ways, here, joins)
    assert sum(place.joins for place in shares.places) == joins == shares.terms.total
    assert all(place.joins > 0 for place in shares.places)


def test_what_cannot_be_shared_out() -> None:
    for joins in (0, -1, 1_000_001):
        with pytest.raises(SharesRefused, match="from 1 to 1000000"):
            shared_out([GATEWAY], [], joins)
    with pytest.raises(SharesRefused, match="with its peer id"):
        shared_out(["/ip4/10.0.0.1/tcp/4001"], [], 1)


def test_a_delegate_gives_on_no_more_than_it_was_given() -> None:
    ways = [a_gateway(number) for number in range(1, 4)]
    given_to = shared_out(ways[:2], [], 5).terms
    shares = shared_on(ways, given_to, 4)
    assert [place.joins for place in shares.places] == [2, 2]
    assert [place.joins for place in shared_on(ways, given_to, 5).places] == [3, 2]
    with pytest.raises(SharesRefused, match="lets 5 join at these gateways, not 6"):
        shared_on(ways, given_to, 6)
    with pytest.raises(SharesRefused, match="names none of the gateways"):
        shared_on(ways[2:], given_to, 1)


# The ids of blocks


def test_the_ids_of_blocks_are_those_that_the_extension_tells(founder: Founder) -> None:
    token = tokens.issue(founder.secret, "test", Statement(user="alice", actions=("read",)))
    for _ in range(3):
        told = tokens.inspect(founder.public, token).revocation_ids
        assert tuple(revocation_ids(token)) == told
        token = tokens.narrow(founder.public, token, Statement(expires_at=time.time() + 60))


def test_a_delegation_has_the_id_that_ends_all_that_is_given_on(founder: Founder) -> None:
    secret = bytes(range(32))
    key = tokens.native().identity(secret)[0]
    delegation = tokens.delegate(founder.secret, "test", key, Statement(roles=("worker",)))
    grant = Statement(roles=("worker",))
    made = tokens.issue_delegated(secret, founder.public, delegation, grant)
    [id_of_delegation] = revocation_ids(delegation)
    assert tokens.inspect(founder.public, made).revocation_ids[0] == id_of_delegation


@given(st.binary(max_size=200))
def test_what_is_no_token_has_no_ids(data: bytes) -> None:
    with contextlib.suppress(TokenMistyped):
        assert all(len(one) == 32 for one in revocation_ids(data))


def test_every_cut_of_a_token_is_told(founder: Founder) -> None:
    token = tokens.issue(founder.secret, "test", Statement(user="alice"))
    whole = revocation_ids(token)
    for length in range(len(token)):
        try:
            assert revocation_ids(token[:length]) == whole, "only the proof may be missing"
        except TokenMistyped:
            continue
