"""Bearer tokens as they come with an HTTP request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mycel.core.rights import Rights
from mycel.swarm.errors import InvalidToken

from .errors import TokenMistyped
from .tokens import from_text

_SCHEME: Final = b"bearer"


class NotAuthenticated(Exception):
    """The message says what is wrong with what was sent."""


def verify(
    authorization: bytes | None, inspect: Callable[[bytes], Rights], swarm: str
) -> tuple[Rights, bytes]:
    """What the header of that name gives a right to, and the token in it. Whether the token is
    over or revoked changes by the moment, and is for the caller to look at each time."""
    scheme, _, text = (authorization or b"").partition(b" ")
    if scheme.lower() != _SCHEME:
        raise NotAuthenticated("send 'Authorization: Bearer TOKEN'")
    try:
        token = from_text(text.decode("ascii", errors="replace"))
        rights = inspect(token)
    except (TokenMistyped, InvalidToken) as error:
        raise NotAuthenticated(str(error)) from None
    if rights.swarm != swarm:
        raise NotAuthenticated("this token is for another swarm")
    if rights.is_bound:
        raise NotAuthenticated("this token is bound to a peer, and no API token")
    if not rights.user:
        raise NotAuthenticated("this token names no user: an invite is no API token")
    return rights, token
