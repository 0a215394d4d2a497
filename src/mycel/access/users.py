"""Users: names that the owner gave API tokens to.

A token is checked by its signature, so that nobody has to ask this file; it is the owner's own
record of who has what, and of what to revoke when somebody leaves.
"""

from __future__ import annotations

import re
import time
from typing import Final

import msgspec

from mycel.core.model.work import DEFAULT_USER

from .errors import AccessError
from .founder import Founder
from .home import Home, read_state, write_state
from .tokens import Statement, inspect, issue

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._@/-]{0,63}")
NAME_RULE: Final = "1 to 64 of a-z, 0-9 and . _ @ / -, a letter or digit first"
USERS_MAX: Final = 10_000


class UserUnknown(AccessError):
    """There is no such user."""


class UserRefused(AccessError):
    """The name cannot be given."""


class User(msgspec.Struct, frozen=True):
    name: str
    created_at: float
    expires_at: float | None
    actions: tuple[str, ...]
    revocation_id: str
    """Of the token's first block, as hex: all that was made from it ends with it."""
    disabled_at: float | None = None


def add(home: Home, founder: Founder, grant: Statement) -> tuple[User, bytes]:
    """The record, and the token itself, which is kept nowhere."""
    with home.changing():
        users = listed(home)
        _check_name(home, users, grant.user or "")
        token = issue(founder.secret, founder.swarm, grant)
        rights = inspect(founder.public, token)
        user = User(
            rights.user,
            time.time(),
            rights.expires_at,
            tuple(sorted(rights.actions)),
            rights.revocation_ids[0].hex(),
        )
        write_state(home.users_path, [*users, user])
    return user, token


def _check_name(home: Home, users: list[User], name: str) -> None:
    if not NAME.fullmatch(name):
        raise UserRefused(f"{name!r} cannot be a user: {NAME_RULE}")
    if name == DEFAULT_USER:
        raise UserRefused(f"{DEFAULT_USER!r} is the owner's own name: choose another")
    if any(user.name == name and user.disabled_at is None for user in users):
        raise UserRefused(
            f"there is a user {name!r}: narrow its token, or disable it first to give a new one"
        )
    if len(users) >= USERS_MAX:
        raise UserRefused(f"there are {USERS_MAX} users already: {home.users_path} is full")


def listed(home: Home) -> list[User]:
    return read_state(home.users_path, list[User]) or []


def enabled(home: Home, name: str) -> list[User]:
    """Those of this name whose tokens hold, as far as this home knows."""
    found = [user for user in listed(home) if user.name == name and user.disabled_at is None]
    if not found:
        raise UserUnknown(f"there is no user {name!r}, or it is disabled: see 'mycel user list'")
    return found


def disable(home: Home, ended: list[User]) -> None:
    """Marks them, once their tokens are revoked: until then they can be found and revoked."""
    now = time.time()
    with home.changing():
        marked = [
            msgspec.structs.replace(user, disabled_at=now) if user in ended else user
            for user in listed(home)
        ]
        write_state(home.users_path, marked)
