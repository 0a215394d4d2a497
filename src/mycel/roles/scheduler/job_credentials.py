"""By what right jobs run: the tokens that users submitted with, bound to this scheduler.

A worker is shown one with every shape. They are kept on disk, because a job outlives the
scheduler's process, and its user may be gone by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

import msgspec

from mycel.access.errors import AccessError, SecretMissing
from mycel.access.secret_files import read_secret_file, replace_secret_file
from mycel.core.model.work import Shape
from mycel.core.rights import Rights

PER_USER_MAX: Final = 8
"""So many different tokens of one user are kept; the latest are."""
USERS_MAX: Final = 10_000


class Credential(msgspec.Struct, frozen=True):
    bound: bytes
    """What workers are shown."""
    rights: Rights


class Credentials:
    def __init__(
        self,
        bind: Callable[[bytes], bytes],
        revoked: Container[bytes],
        note: Callable[..., None],
        *,
        keep_at: Path | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`bind` makes a token good for this scheduler alone."""
        self._bind = bind
        self._revoked = revoked
        self._note = note
        self._keep_at = keep_at
        self._wall = wall
        self._users: dict[str, list[Credential]] = {}
        self._last: Rights | None = None
        self._load()

    def keep(self, token: bytes, rights: Rights) -> None:
        """Cheap for one that is known: it is asked with every job."""
        if rights is self._last:
            return
        self._last = rights
        known = self._users.get(rights.user)
        if known is not None and any(one.rights == rights for one in known):
            return
        if known is None:
            if len(self._users) >= USERS_MAX:
                self._users.pop(next(iter(self._users)))
            known = self._users[rights.user] = []
        known.insert(0, Credential(self._bind(token), rights))
        del known[PER_USER_MAX:]
        self._store()

    def bound(self, token: bytes) -> bytes:
        """As this scheduler may show it to others."""
        return self._bind(token)

    def for_shape(self, shape: Shape) -> bytes:
        """A token that allows it, now; nothing if there is none, and the worker will say so."""
        known = self._users.get(shape.user, ())
        for one in known:
            rights = one.rights
            if (
                rights.objection(shape) is None
                and not rights.is_over(self._wall())
                and not rights.is_revoked(self._revoked)
            ):
                return one.bound
        # One that is over tells more than none.
        return known[0].bound if known else b""

    def _store(self) -> None:
        if self._keep_at is None:
            return
        try:
            replace_secret_file(self._keep_at, msgspec.msgpack.encode(self._users))
        except AccessError as error:
            self._note("credentials_not_kept", error=str(error))

    def _load(self) -> None:
        if self._keep_at is None:
            return
        try:
            content = read_secret_file(self._keep_at, "the users' credentials")
            self._users = msgspec.msgpack.decode(content, type=dict[str, list[Credential]])
        except SecretMissing:
            pass
        except msgspec.DecodeError as error:
            self._note("credentials_damaged", error=str(error))
