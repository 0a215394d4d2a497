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
from mycel.access.blocks import revocation_ids
from mycel.access.errors import InviteMistyped, InviteUnusable, SecretExists, TokenMistyped
from mycel.access.founding import Founder, found, owner_public_of
from mycel.access.home import Home, RoleFolder, read_state
from mycel.access.invites import Invite, Joined
from mycel.access.tokens import Statement

GATEWAY = "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWL4Kx6Qn3n4zdAgSPvH3zgJhzGXegscK9VnveXeDYmHU1"


@pytest.fixture
def founder(tmp_path: Path) -> Founder:
    return found(Home(tmp_path / "owner"), "test")


def an_invite(founder: Founder, seconds: float = 3600.0, **changes: object) -> Invite:
    grant = Statement(roles=("worker", "gateway"), expires_at=time.time() + seconds)
    token = tokens.issue(founder.secret, founder.swarm, grant)
    invite = Invite(founder.swarm, (GATEWAY,), founder.public, token)
    return msgspec.structs.replace(invite, **changes)


def fresh(tmp_path: Path) -> tuple[Home, RoleFolder]:
    home = Home(tmp_path / "guest")
    return home, home.role("worker")


def test_one_string_is_all_that_a_new_machine_needs(tmp_path: Path, founder: Founder) -> None:
    text = invites.to_text(an_invite(founder))
    home, folder = fresh(tmp_path)
    invites.redeem(invites.from_text(f"  {text[:50]}\n{text[50:]} "), home, folder, "worker")
    assert owner_public_of(home) == founder.public
    assert read_state(folder.joined_path, Joined) == Joined("test", (GATEWAY,))
    peer = tokens.native().identity(bytes.fromhex(folder.identity_path.read_text()))[1]
    token = tokens.load_member_token(folder.member_token_path)
    rights = tokens.inspect(founder.public, token, peer)
    assert (rights.roles, rights.is_bound) == (frozenset({"worker"}), True)
    for path in (folder.member_token_path, folder.identity_path, home.owner_public_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not home.owner_key_path.exists()


def test_gateways_of_a_kind_that_is_not_known_here_are_left_out(
    tmp_path: Path, founder: Founder
) -> None:
    home, folder = fresh(tmp_path)
    later = "/ip4/127.0.0.1/udp/4001/webtransport"
    invites.redeem(an_invite(founder, gateways=(later, GATEWAY)), home, folder, "worker")
    assert read_state(folder.joined_path, Joined) == Joined("test", (GATEWAY,))
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
    for nonsense in ("", "hello", "mycel_abc", "mycel-invite-1.", "mycel-invite-x.abc"):
        with pytest.raises(InviteMistyped):
            invites.from_text(nonsense)
    with pytest.raises(InviteUnusable, match="version 2"):
        invites.from_text(text.replace("invite-1", "invite-2"))


def test_what_cannot_be_redeemed(tmp_path: Path, founder: Founder) -> None:
    home, folder = fresh(tmp_path)
    stranger = found(Home(tmp_path / "stranger"), "test")
    bound = tokens.bind(founder.public, an_invite(founder).token, "12D3KooWSomebody")
    for invite, role, reason in (
        (an_invite(founder, -120), "worker", "has expired"),
        (an_invite(founder), "scheduler", "for gateway, worker, not for a scheduler"),
        (an_invite(founder, owner_public=stranger.public), "worker", "not signed"),
        (an_invite(founder, swarm="other"), "worker", "contradicts itself"),
        (an_invite(founder, token=bound), "worker", "contradicts itself"),
        (an_invite(founder, token=b"nonsense"), "worker", "not good"),
    ):
        with pytest.raises(InviteUnusable, match=reason):
            invites.redeem(invite, home, folder, role)
    assert not folder.member_token_path.exists()


def test_a_member_starts_again_with_its_old_invite(tmp_path: Path, founder: Founder) -> None:
    home, folder = fresh(tmp_path)
    invites.redeem(an_invite(founder), home, folder, "worker")
    token = folder.member_token_path.read_bytes()
    invites.redeem(an_invite(founder, -120), home, folder, "worker")
    assert folder.member_token_path.read_bytes() == token


def test_one_home_has_one_owner(tmp_path: Path, founder: Founder) -> None:
    home, folder = fresh(tmp_path)
    invites.redeem(an_invite(founder), home, folder, "worker")
    stranger = found(Home(tmp_path / "stranger"), "test")
    with pytest.raises(SecretExists, match="two homes"):
        invites.redeem(an_invite(stranger), home, folder, "worker")


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
