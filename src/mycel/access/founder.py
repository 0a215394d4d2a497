"""Whoever founds a swarm: the owner's key, its public half, and the first API token."""

from __future__ import annotations

import contextlib
import time
from typing import Final

import msgspec

from mycel.core.model.work import DEFAULT_USER
from mycel.core.rights import ACTIONS

from .errors import NotFounder, SecretExists, SecretMissing
from .home import Home
from .key_files import load_key, load_or_create_key, store_public_key
from .tokens import Statement, issue, load_api_token, native, store_api_token

OWN_TOKEN_SECONDS: Final = 10 * 365 * 86_400
"""Tokens that the founder gives to its own machine."""


class Founder(msgspec.Struct, frozen=True):
    """Can sign for the swarm."""

    secret: bytes
    public: bytes
    swarm: str

    def member_token(self, peer: str, roles: tuple[str, ...]) -> bytes:
        """For a node of the founder's own home."""
        grant = Statement(roles=roles, expires_at=time.time() + OWN_TOKEN_SECONDS, peer=peer)
        return issue(self.secret, self.swarm, grant)


def found(home: Home, swarm: str) -> Founder:
    """Creates what is missing. A home that has joined somebody else's swarm founds none."""
    home.create()
    if home.owner_public_path.exists() and not home.owner_key_path.exists():
        raise NotFounder(
            f"{home.path} has joined somebody else's swarm, or its owner.key is lost: put a backup "
            "there, or found a swarm of your own in another home (--home)"
        )
    secret = load_or_create_key(home.owner_key_path, "the owner's key")
    founder = _founder(home, secret, swarm)
    if not home.token_path.exists():
        grant = Statement(
            user=DEFAULT_USER, actions=ACTIONS, expires_at=time.time() + OWN_TOKEN_SECONDS
        )
        with contextlib.suppress(SecretExists):  # another process was faster
            store_api_token(home.token_path, issue(secret, swarm, grant))
    load_api_token(home.token_path)
    return founder


def founder_of(home: Home, swarm: str) -> Founder:
    """Of a swarm that was founded in this home."""
    try:
        secret = load_key(home.owner_key_path, "the owner's key")
    except SecretMissing:
        raise NotFounder(
            f"{home.path} has no owner.key: run this where the swarm was founded ('mycel up'), "
            "sign by a delegation (--delegation, --key), or narrow a token that you have"
        ) from None
    return _founder(home, secret, swarm)


def _founder(home: Home, secret: bytes, swarm: str) -> Founder:
    public: bytes = native().identity(secret)[0]
    store_public_key(home.owner_public_path, public)
    return Founder(secret, public, swarm)


def owner_public_of(home: Home) -> bytes:
    """What every token is held against."""
    try:
        return load_key(home.owner_public_path, "the owner's public key")
    except SecretMissing:
        raise SecretMissing(
            f"{home.path} belongs to no swarm yet: join one with --join INVITE, found one with "
            "'mycel up', or put the owner.pub of its owner there"
        ) from None
