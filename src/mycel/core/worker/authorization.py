"""By what right a scheduler assigns: the worker's own check of each shape's token and rules.

    Introduce ─▶ token: signed, for this scheduler, not over, not revoked? ─▶ covers the shape?
              ─▶ the worker's own rules: owners, users, drivers, images
    a token that ends or is revoked later: nothing more of the shapes that stand on it is begun

Nobody is asked: the owner's public key and what this worker knows of revocations are enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from mycel.core.events import Revoked, WallClock
from mycel.core.identifiers import PeerId
from mycel.core.messages import Introduce
from mycel.core.messages.refusals import NO_RIGHT, RULES
from mycel.core.model.work import Shape
from mycel.core.rights import ADMIN, TOLERANCE_SECONDS, Inspect, Rights

from .records import Objection, ShapeLanes

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
        inspect: Inspect | None,
        rules: AcceptRules,
    ) -> None:
        """Without `inspect` no tokens are asked for; only simulations do without."""
        self._machine = machine
        self._inspect = inspect
        self._rules = rules
        self._unix_offset: float | None = None
        self._revoked: set[bytes] = set()

    def judge(self, peer: PeerId, message: Introduce, now: float) -> Rights | Objection:
        """The right by which such tasks may run, or why they may not."""
        rights = self._rights(peer, message, now)
        if isinstance(rights, str):
            return Objection(NO_RIGHT, rights)
        against = self._rules.objection(message.shape, rights.signer)
        return rights if against is None else Objection(RULES, against)

    def _rights(self, peer: PeerId, message: Introduce, now: float) -> Rights | str:
        if self._inspect is None:
            return Rights()
        if not message.token:
            return "it asks for the user's token, and got none"
        rights = self._inspect(message.token, peer)
        if isinstance(rights, str):
            return rights
        if not rights.is_bound:
            return "its token is not bound to the scheduler that sent it"
        return self.lapse(rights, now) or rights.objection(message.shape) or rights

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

    def stands_on(self, lanes: ShapeLanes, rights: Rights, now: float) -> None:
        lanes.rights = rights
        self._watch(lanes, now)

    # What changes while a shape is known

    def wall_clock(self, event: WallClock, now: float) -> None:
        self._unix_offset = event.unix_offset
        for lanes in self._machine.lanes.values():
            self._watch(lanes, now)

    def revoked(self, event: Revoked, now: float) -> None:
        self._revoked |= event.ids
        for lanes in list(self._machine.lanes.values()):
            self.check(lanes, now)

    def due(self, key: object, now: float) -> None:
        lanes = self._machine.lanes.get(key)  # type: ignore[call-overload]
        if lanes is not None:
            self.check(lanes, now)

    def check(self, lanes: ShapeLanes, now: float) -> None:
        """What runs goes on; nothing more is begun."""
        lapse = self.lapse(lanes.rights, now)
        if lapse is None:
            self._watch(lanes, now)
        elif lanes.objection is None:
            self._machine.running.object_to(lanes, Objection(NO_RIGHT, lapse))

    def lapse(self, rights: Rights, now: float) -> str | None:
        """Why a right that was good once is not any more."""
        if rights.is_revoked(self._revoked):
            return "its token was revoked"
        if self._unix_offset is not None and rights.is_over(now + self._unix_offset):
            return "its token has expired"
        return None

    def _watch(self, lanes: ShapeLanes, now: float) -> None:
        ends_at = lanes.rights.expires_at
        if ends_at is not None and self._unix_offset is not None and lanes.objection is None:
            due = ends_at + TOLERANCE_SECONDS - self._unix_offset
            self._machine.watch(TIMER, lanes.key, max(now, due))
