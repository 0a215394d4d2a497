"""By what right a scheduler asks: the worker's own check of each request's token and rules.

    Request ─▶ token: signed, for this scheduler, not over, not revoked? ─▶ covers the shape?
            ─▶ the worker's own rules: owners, users, drivers, images
    a token that ends or is revoked later ends the leases that stand on it

Nobody is asked: the owner's public key and what this worker knows of revocations are enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from mycel.core.events import Revoked, WallClock
from mycel.core.identifiers import PeerId
from mycel.core.messages import Request
from mycel.core.model.work import Shape
from mycel.core.rights import ADMIN, TOLERANCE_SECONDS, Inspect, Rights
from mycel.core.states import GrantStep

from .granted_leases import Grants
from .records import Grant

if TYPE_CHECKING:
    from .machine import WorkerMachine

TIMER: Final = "token"


class AcceptRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker takes on beyond what tokens say. Empty takes all; a name may end in `*`."""

    owners: tuple[str, ...] = ()
    """Public keys, as hex, that vouch for a user: the owner's, or delegates'."""
    users: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    images: tuple[str, ...] = ()

    def objection(self, shape: Shape, signer: str) -> str | None:
        if self.owners and signer not in self.owners:
            return "it takes no work that this key vouches for"
        if self.users and not _matches(shape.user, self.users):
            return f"it takes no work of the user {shape.user}"
        if self.drivers and not _matches(shape.driver, self.drivers):
            return f"it runs no {shape.driver} tasks for others"
        if self.images and shape.image and not _matches(shape.image, self.images):
            return f"it does not run the image {shape.image}"
        return None


NO_RULES: Final = AcceptRules()


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in patterns)


class Authority:
    def __init__(
        self,
        machine: WorkerMachine,
        granted: Grants,
        inspect: Inspect | None,
        rules: AcceptRules,
    ) -> None:
        """Without `inspect` no tokens are asked for; only simulations do without."""
        self._machine = machine
        self._granted = granted
        self._inspect = inspect
        self._rules = rules
        self._unix_offset: float | None = None
        self._revoked: set[bytes] = set()

    def judge(self, peer: PeerId, request: Request, now: float) -> Rights | str:
        """The right by which it may be granted, or why not."""
        if self._inspect is None:
            return self._rules.objection(request.shape, "") or Rights()
        if not request.token:
            return "it asks for the user's token, and got none"
        rights = self._inspect(request.token, peer)
        if isinstance(rights, str):
            return rights
        if not rights.is_bound:
            return "its token is not bound to the scheduler that sent it"
        objection = self.lapse(rights, now) or rights.objection(request.shape)
        return objection or self._rules.objection(request.shape, rights.signer) or rights

    def objection_to_admin(self, peer: PeerId, token: bytes, now: float) -> str | None:
        """Why whoever holds this token may not say what this worker does."""
        if self._inspect is None:
            return None
        rights = self._inspect(token, peer) if token else "it asks for a token, and got none"
        if isinstance(rights, str):
            return rights
        if not rights.is_bound:
            return "its token is not bound to the scheduler that sent it"
        if ADMIN not in rights.actions:
            return f"its token does not allow to {ADMIN}"
        return self.lapse(rights, now)

    def stands_on(self, grant: Grant, rights: Rights, now: float) -> None:
        grant.rights = rights
        self._watch(grant, now)

    # What changes while a lease stands

    def wall_clock(self, event: WallClock, now: float) -> None:
        self._unix_offset = event.unix_offset
        for grant in self._machine.grants.values():
            self._watch(grant, now)

    def revoked(self, event: Revoked, now: float) -> None:
        self._revoked |= event.ids
        for grant in list(self._machine.grants.values()):
            self.check(grant, now)

    def check(self, grant: Grant, now: float) -> None:
        """What runs under it goes on; nothing more is begun."""
        if not grant.is_open:
            return
        lapse = self.lapse(grant.rights, now)
        if lapse is not None:
            self._granted.end(grant, GrantStep.EXPIRE, lapse)
        else:
            self._watch(grant, now)

    def lapse(self, rights: Rights, now: float) -> str | None:
        """Why a right that was good once is not any more."""
        if rights.is_revoked(self._revoked):
            return "its token was revoked"
        if self._unix_offset is not None and rights.is_over(now + self._unix_offset):
            return "its token has expired"
        return None

    def _watch(self, grant: Grant, now: float) -> None:
        ends_at = grant.rights.expires_at
        if ends_at is not None and self._unix_offset is not None and grant.is_open:
            due = ends_at + TOLERANCE_SECONDS - self._unix_offset
            self._machine.watch(TIMER, grant.id, max(now, due))
