"""Invites: one string that brings a new machine into a swarm.

It holds the swarm's name, where its gateways are, the owner's public key and a token that is
not bound to anybody yet. The token names the gateways' keys and how many may join: a new machine
shows it to one of these gateways, which counts, and gives it the token of a member
(`membership/admission.py`). Everybody else refuses it. The version stands in front, and a checksum
is in it, so that a mistyped invite is told apart from an old one.
"""

from __future__ import annotations

import base64
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from blake3 import blake3

from mycel.core.rights import Rights
from mycel.swarm.errors import InvalidToken
from mycel.swarm.multiaddress import EVERYWHERE, ON_THIS_MACHINE, objection

from . import tokens
from .errors import AccessError, InviteMistyped, InviteUnusable
from .home import Home, RoleFolder, write_state
from .key_files import load_or_create_key, store_public_key

VERSION: Final = 2
"""2: gateways exchange it for a member's token; in version 1 its holder made that alone."""
GATEWAYS_MAX: Final = 16
LENGTH_MAX: Final = 16_384
_FORM: Final = re.compile(r"mycel-invite-(\d{1,4})\.([A-Za-z0-9_-]+)")
_CHECKSUM_BYTES: Final = 4


class Invite(msgspec.Struct, frozen=True, array_like=True):
    swarm: str
    gateways: tuple[str, ...]
    owner_public: bytes
    token: bytes


class Joined(msgspec.Struct, frozen=True):
    """What a node keeps of its invite, beside key and token."""

    swarm: str
    gateways: tuple[str, ...]

    def settings(self) -> dict[str, object]:
        """What follows from it, unless the node's configuration says otherwise. Where the swarm
        is not all on one machine, its nodes listen for each other: one that keeps to loopback
        can neither be called nor reached through a gateway."""
        found: dict[str, object] = {"swarm.name": self.swarm, "swarm.bootstrap": [*self.gateways]}
        if not all(address.startswith(ON_THIS_MACHINE) for address in self.gateways):
            found["swarm.listen"] = [EVERYWHERE]
        return found


class Application(msgspec.Struct, frozen=True):
    """What a newcomer shows to the gateways of its invite, to become a member."""

    token: bytes
    """The invite's, bound to the newcomer and for its role alone."""
    joined: Joined

    def accept(self, folder: RoleFolder, member_token: bytes) -> None:
        """A gateway has admitted this node. Until then an earlier membership stays as it was."""
        tokens.store_member_token(folder.member_token_path, member_token)
        write_state(folder.joined_path, self.joined)


def to_text(invite: Invite) -> str:
    payload = msgspec.msgpack.encode(invite)
    whole = payload + blake3(payload).digest()[:_CHECKSUM_BYTES]
    return f"mycel-invite-{VERSION}." + base64.urlsafe_b64encode(whole).decode().rstrip("=")


def from_text(text: str) -> Invite:
    """The messages never hold the invite itself."""
    found = _FORM.fullmatch("".join(text.split()))
    if found is None or len(text) > LENGTH_MAX:
        raise InviteMistyped(
            "this is no invite: one begins with 'mycel-invite-' and comes from 'mycel invite'"
        )
    if int(found[1]) != VERSION:
        raise InviteUnusable(
            f"this invite is of version {int(found[1])}, and this Mycel reads version {VERSION}: "
            "use the same release on both machines"
        )
    whole = tokens.decode_base64(found[2])
    payload, checksum = whole[:-_CHECKSUM_BYTES], whole[-_CHECKSUM_BYTES:]
    if not payload or blake3(payload).digest()[:_CHECKSUM_BYTES] != checksum:
        raise InviteMistyped("this invite is mistyped or cut off: copy the whole of it again")
    try:
        return msgspec.msgpack.decode(payload, type=Invite)
    except msgspec.DecodeError:
        raise InviteMistyped("this invite holds nothing of use: ask for a new one") from None


def read(given: str) -> Invite:
    """From what `--join` was given: an invite, or a file that holds one, since a command line is
    visible to everybody on the machine."""
    if not given.lstrip().startswith("mycel-invite-"):
        path = Path(given).expanduser()
        if path.is_file():
            return from_text(path.read_text(encoding="utf-8", errors="replace"))
    return from_text(given)


def redeem(invite: Invite, home: Home, folder: RoleFolder, role: str) -> Application | None:
    """Creates this node's identity, and what it asks a gateway with to become a member. None if it
    is one already and the invite has ended since."""
    try:
        _check(invite, role)
    except InviteUnusable:
        if not _is_member(invite, folder):
            raise
        return None
    home.create()
    folder.create()
    store_public_key(home.owner_public_path, invite.owner_public)
    peer: str = tokens.native().identity(
        load_or_create_key(folder.identity_path, "this node's identity")
    )[1]
    bound = tokens.bind(invite.owner_public, invite.token, peer)
    own = tokens.narrow(invite.owner_public, bound, tokens.Statement(roles=(role,)))
    return Application(own, Joined(invite.swarm, _usable(invite.gateways)))


def _usable(gateways: tuple[str, ...]) -> tuple[str, ...]:
    """Later versions may know of other kinds of addresses."""
    return tuple(address for address in gateways if not objection(address))[:GATEWAYS_MAX]


def _check(invite: Invite, role: str) -> Rights:
    try:
        rights = tokens.inspect(invite.owner_public, invite.token)
    except InvalidToken as error:
        raise InviteUnusable(f"this invite is not good: {error}") from None
    if rights.is_over(time.time()):
        ended = datetime.fromtimestamp(rights.expires_at or 0, UTC)
        raise InviteUnusable(
            f"this invite has expired ({ended:%Y-%m-%d %H:%M} UTC): ask for a new one, and see "
            "that this machine's clock is right"
        )
    if rights.swarm != invite.swarm or rights.is_bound or not rights.invite:
        raise InviteUnusable("this invite contradicts itself: ask for a new one")
    if not _usable(invite.gateways):
        named = "".join(f" ({one!r}: {objection(one)})" for one in invite.gateways[:1])
        raise InviteUnusable(
            f"this invite names no gateway that can be reached from here{named}: ask for a new one"
        )
    if role not in rights.roles:
        roles = ", ".join(sorted(rights.roles)) or "nothing"
        raise InviteUnusable(f"this invite is for {roles}, not for a {role}: ask for another")
    return rights


def _is_member(invite: Invite, folder: RoleFolder) -> bool:
    try:
        rights = tokens.inspect(
            invite.owner_public, tokens.load_member_token(folder.member_token_path)
        )
    except (AccessError, InvalidToken):
        return False
    return rights.swarm == invite.swarm and not rights.is_over(time.time())
