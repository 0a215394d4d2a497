"""Whether this node gets into its swarm at all, and what to tell who started it if not.

A gateway that refuses the hello does so for a reason that waiting does not mend: a node that
has never been inside ends with it. One that was inside goes on and keeps trying, because its
tasks run on. A node that joins by a fresh invite also ends when no gateway answers; one that
has joined before says so, and keeps trying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from mycel.runtime.clock import Clock
from mycel.swarm.interface import DialFailure
from mycel.swarm.quic_alternative import quic_twin

REACH_SECONDS: Final = 20.0
_OTHER_SWARM: Final = "the invite is of another swarm: ask for one of this swarm"
_OTHER_KEY: Final = "identity.key and member.token do not belong together: join again with --join"
_ADVICE: Final = {
    "used_up": "ask for another invite, or for one for more machines (mycel invite --joins N)",
    "unvouched": (
        "member.token is of an earlier version: delete it and start again, or join with --join"
    ),
    "not_admitted": "ask for an invite of this swarm and start with --join",
    "clock": "set this machine's clock and start again",
    "expired": "ask for a new invite and start with --join",
    "revoked": "the owner has ended this node's token; ask for a new invite",
    "signature": _OTHER_SWARM,
    "swarm": _OTHER_SWARM,
    "duplicate": "give one of the two machines a new home and a new invite",
    "wrong_peer": _OTHER_KEY,
    "unbound": _OTHER_KEY,
    "version": "use the same release on all machines",
}
"""What to do, by the reason of the refusal (docs/wire.md)."""


class FailedDial(NamedTuple):
    failure: DialFailure
    error: str
    refusal: str
    """Why the hello was refused, if it was: see `_ADVICE`."""


class NotAdmitted(Exception):
    """The swarm does not let this node in; the message says what to do."""


class Arrival:
    def __init__(
        self,
        clock: Clock,
        gateways: tuple[str, ...],
        fail: Callable[[BaseException], None],
        warn: Callable[[str], None],
        *,
        must_arrive: bool,
    ) -> None:
        self._gateways = gateways
        self._ways = {*gateways, *map(quic_twin, gateways)}
        self._fail = fail
        self._warn = warn
        self._warned = ""
        self._arrived = False
        self._must_arrive = must_arrive
        self._errors: dict[str, str] = {}
        if gateways:
            clock.call_at(clock.now() + REACH_SECONDS, self._too_late)

    def arrived(self) -> None:
        self._arrived = True

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        if address not in self._ways:
            return
        self._errors[address] = error
        if failure is not DialFailure.NOT_ADMITTED:
            return
        refused = not_admitted([FailedDial(failure, error, refusal)])
        if self._arrived:
            self.warn_of(str(refused))
        else:
            self._fail(refused)

    def warn_of(self, text: str) -> None:
        """Once, however often it happens."""
        if text != self._warned:
            self._warned = text
            self._warn(text)

    def _too_late(self) -> None:
        if self._arrived:
            return
        text = out_of_reach(self._gateways, self._errors)
        if self._must_arrive:
            self._fail(NotAdmitted(text))
        else:
            self.warn_of(f"{text}; it keeps trying")


def not_admitted(dials: Iterable[FailedDial]) -> NotAdmitted:
    """Of each gateway that was asked."""
    reasons = dict.fromkeys(map(_advised, dials))
    return NotAdmitted(f"the gateway does not admit this node: {'; '.join(reasons)}")


def out_of_reach(gateways: Sequence[str], errors: Mapping[str, str]) -> str:
    tried = "; ".join(
        f"{address}: {' '.join(errors.get(address, 'no answer').split())}" for address in gateways
    )
    return (
        f"no gateway of the swarm can be reached ({tried}): see that one runs, and that this "
        "machine may connect to it"
    )


def _advised(dial: FailedDial) -> str:
    """The reason, and what to do about it."""
    error = dial.error.removeprefix("refused by the peer: ")
    advice = _ADVICE.get(dial.refusal)
    return f"{error}; {advice}" if advice else error
