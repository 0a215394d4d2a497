"""The connections of one server: how many there are, whose they are, and which have to go.

A connection is a stranger's until a request on it has shown a good token. Where there is no room
for another one, the oldest stranger goes; without strangers, the oldest idle connection of the
user who has most. So thousands of idle strangers keep nobody out, not even on loopback, where
all have one address.

One sweep a second looks at all of them. No connection and no request has a timer of its own.
"""

from __future__ import annotations

import ipaddress
import time
from functools import lru_cache
from typing import Final, Protocol

from .caller_limits import Limits, connections_max

CROWDED_IDLE_SECONDS: Final = 5.0
"""Idle connections are kept for so long only, where three quarters of the room are taken."""
PACE_BYTES: Final = 1000
"""A second: what moves more slowly, in a body or an answer, stands still."""
LINGER_SECONDS: Final = 2.0
"""So long a client may take to read the last answer and to stop writing."""


class Guest(Protocol):
    """A connection, as it is counted here."""

    host: str
    """The other side's address."""
    user: str | None
    """Whose it is, once that is known."""

    @property
    def is_idle(self) -> bool:
        """Nobody waits for an answer on it."""
        ...

    def look(self, now: float, idle_seconds: float) -> None:
        """Ends itself if its time is over."""
        ...

    def drop(self) -> None:
        """Ends now; what it had not sent is lost."""
        ...


class Connections:
    def __init__(self, limits: Limits) -> None:
        self.limits: Final = limits
        self.now = time.monotonic()
        """As of the last sweep: exact enough for all that is measured by it."""
        limits.room = connections_max(limits)
        self._guests: set[Guest] = set()
        self._strangers: dict[Guest, None] = {}
        """The oldest first."""
        self._strangers_of: dict[str, dict[Guest, None]] = {}
        self._known_of: dict[str, dict[Guest, None]] = {}

    def __len__(self) -> int:
        return len(self._guests)

    def admit(self, guest: Guest) -> bool:
        """False if there is no room, and nobody to go instead."""
        place = _place_of(guest.host)
        near = self._strangers_of.get(place)
        if near is not None and place and len(near) >= self.limits.connections_per_address:
            self._part(next(iter(near)))
        if len(self._guests) >= self.limits.room and not self._make_room():
            return False
        self._guests.add(guest)
        self._strangers[guest] = None
        self._strangers_of.setdefault(place, {})[guest] = None
        return True

    def recognise(self, guest: Guest, user: str) -> None:
        """A request on it has shown a token of this user."""
        if guest not in self._guests:
            return
        self._forget(guest)
        guest.user = user
        self._known_of.setdefault(user, {})[guest] = None

    def leave(self, guest: Guest) -> None:
        if guest in self._guests:
            self._guests.discard(guest)
            self._forget(guest)

    def sweep(self) -> None:
        self.now = now = time.monotonic()
        self.limits.room = room = connections_max(self.limits)
        idle_seconds = self.limits.idle_seconds
        if len(self._guests) * 4 >= room * 3:
            idle_seconds = min(idle_seconds, CROWDED_IDLE_SECONDS)
        for guest in list(self._guests):
            guest.look(now, idle_seconds)

    def _make_room(self) -> bool:
        if self._strangers:
            self._part(next(iter(self._strangers)))
            return True
        crowd = max(self._known_of.values(), key=len, default={})
        idle = next((guest for guest in crowd if guest.is_idle), None)
        if idle is not None:
            self._part(idle)
        return idle is not None

    def _part(self, guest: Guest) -> None:
        self.leave(guest)
        guest.drop()

    def _forget(self, guest: Guest) -> None:
        self._strangers.pop(guest, None)
        if guest.user is None:
            groups, name = self._strangers_of, _place_of(guest.host)
        else:
            groups, name = self._known_of, guest.user
        group = groups.get(name)
        if group is not None:
            group.pop(guest, None)
            if not group:
                del groups[name]


@lru_cache(4096)
def _place_of(host: str) -> str:
    """What is limited as one address: of IPv6, the network that one machine chooses its addresses
    from. Empty for loopback, which is not limited."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return _place_of(str(address.ipv4_mapped))
        if not address.is_loopback:
            return str(ipaddress.ip_network((address, 64), strict=False))
    return "" if address.is_loopback else str(address)
