"""Who calls, and what they may.

A token is verified once and remembered; each call after that looks only at what may have
changed: its end and the revocations. A user sees and touches its own jobs; who may `admin`,
everybody's.
The route table says which right a route needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import Final

import msgspec

from mycel.access.bearer import NotAuthenticated, verify
from mycel.api.http.problems import Problem, not_found
from mycel.core.identifiers import is_job_id
from mycel.core.model.work import Shape
from mycel.core.rights import ADMIN, Rights

KNOWN_MAX: Final = 4096
"""So many verified tokens are remembered…"""
KNOWN_BYTES_MAX: Final = 8 << 10
"""…unless the header is longer: one token can be written in many ways."""
_CHALLENGE: Final = [(b"www-authenticate", b'Bearer realm="mycel"')]


class Caller(msgspec.Struct, frozen=True):
    rights: Rights
    token: bytes

    @property
    def user(self) -> str:
        return self.rights.user

    @property
    def sees_all(self) -> bool:
        return ADMIN in self.rights.actions

    def sees(self, user: str) -> bool:
        """A user's own parts, "alice/ci", are its own too."""
        return self.sees_all or user == self.user or user.startswith(f"{self.user}/")

    def check(self, shape: Shape) -> None:
        """Whether it may have such tasks run."""
        objection = self.rights.objection(shape)
        if objection is not None:
            raise Problem(403, objection.replace("its token", "this token"))


class Authenticator:
    def __init__(
        self,
        inspect: Callable[[bytes], Rights],
        swarm: str,
        revoked: Container[bytes],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`inspect` raises `InvalidToken`; `revoked` is looked at with every call."""
        self._inspect = inspect
        self._swarm = swarm
        self._revoked = revoked
        self._wall = wall
        self._known: dict[bytes, Caller] = {}

    def identify(self, authorization: bytes | None) -> Caller:
        """From the header of that name. Raises a 401 that says what is wrong."""
        if authorization is None:
            raise _unauthenticated("send 'Authorization: Bearer TOKEN'")
        caller = self._known.get(authorization)
        if caller is None:
            caller = self._verify(authorization)
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            if len(authorization) <= KNOWN_BYTES_MAX:
                self._known[authorization] = caller
        rights = caller.rights
        if rights.is_over(self._wall()):
            raise _unauthenticated("this token has expired: ask for a new one")
        if rights.is_revoked(self._revoked):
            raise _unauthenticated("this token was revoked")
        return caller

    def _verify(self, authorization: bytes) -> Caller:
        try:
            return Caller(*verify(authorization, self._inspect, self._swarm))
        except NotAuthenticated as error:
            raise _unauthenticated(str(error)) from None


ANYBODY: Final = Caller(Rights(), b"")
"""Whoever asks for what needs no token. It sees nothing, and has no right."""


def authorise(
    caller: Caller, right: str, owned: str, name: str, user_of: Callable[[str], str | None]
) -> None:
    """Raises a 403 for what the token does not allow. Raises a 404 for a job or task (`owned` says
    which) of another user, because its existence is that user's to tell. `user_of` says whose a
    job is."""
    if right not in caller.rights.actions and ADMIN not in caller.rights.actions:
        raise Problem(403, f"this token does not allow to {right}")
    if not owned or caller.sees_all:
        return
    job = name.partition(".")[0]
    user = user_of(job) if is_job_id(job) else None
    if user is not None and not caller.sees(user):
        raise not_found(f"{owned} {name!r}")


def _unauthenticated(detail: str) -> Problem:
    return Problem(401, detail, headers=_CHALLENGE)
