"""How much of the API one caller, and all callers together, may take up at a time."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from .problems import Problem

DESCRIPTORS_KEPT: Final = 1024
"""Connections of the API leave so many file descriptors for the node's own use."""
RETRY_SECONDS: Final = 10
USERS_SHARE: Final = 4
"""One user gets a quarter of what all requests may hold in memory."""


class Limits(msgspec.Struct):
    """They may change while the server runs."""

    request_bytes: int = 10_000_000
    bodies_bytes: int = 256_000_000
    """Of all requests that are being read or answered."""
    connections: int = 4096
    room: int = 4096
    """Of those, what the system's limit on file descriptors allows; set by `Connections`."""
    connections_per_address: int = 256
    """Loopback is exempt: everybody on the machine, and a proxy there, has that address."""
    head_seconds: float = 10.0
    """A TLS handshake, and the head of a request, may take so long each."""
    idle_seconds: float = 75.0
    stall_seconds: float = 30.0
    """A body or an answer that moves less than `connections.PACE_BYTES` a second for so long ends
    its connection."""
    streams: int = 512
    """Answers that last: events, followed logs and results, streamed tokens."""
    streams_per_user: int = 128
    waits_per_user: int = 1024
    """Requests that wait for an end."""


def connections_max(limits: Limits) -> int:
    """What is configured, or what the system's limit on file descriptors leaves."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits.connections
    return min(limits.connections, soft - min(DESCRIPTORS_KEPT, soft // 2))


class Shares:
    """Counts what each user holds of something. Parts of a user ("alice/ci") count as the user:
    anybody can make any number of parts of itself."""

    def __init__(
        self, what: str, per_user: Callable[[], int], in_all: Callable[[], int] | None = None
    ) -> None:
        self._what = what
        self._per_user = per_user
        self._in_all = in_all
        self._held: dict[str, int] = {}
        self._sum = 0

    def take(self, user: str, amount: int = 1) -> None:
        """Raises a 429 when that is too much."""
        name = user.partition("/")[0]
        held = self._held.get(name, 0) + amount
        if held > self._per_user():
            raise _too_many(
                f"{name} has {self._per_user()} {self._what} at once, which is the limit"
            )
        if self._in_all is not None and self._sum + amount > self._in_all():
            raise _too_many(f"all may have {self._in_all()} {self._what} at once")
        self._held[name] = held
        self._sum += amount

    def give_back(self, user: str, amount: int = 1) -> None:
        name = user.partition("/")[0]
        held = self._held[name] - amount
        self._sum -= amount
        if held:
            self._held[name] = held
        else:
            del self._held[name]

    @contextmanager
    def held(self, user: str) -> Iterator[None]:
        self.take(user)
        try:
            yield
        finally:
            self.give_back(user)


class Crowd:
    """Who takes up what of one server."""

    def __init__(self, limits: Limits) -> None:
        self.streams = Shares("streams", lambda: limits.streams_per_user, lambda: limits.streams)
        # A quarter of the connections stays for those who do not wait.
        self.waits = Shares(
            "waiting requests",
            lambda: limits.waits_per_user,
            lambda: limits.room * 3 // 4,
        )
        self.bodies = Shares(
            "bytes of requests",
            lambda: max(limits.request_bytes, limits.bodies_bytes // USERS_SHARE),
            lambda: max(limits.request_bytes, limits.bodies_bytes),
        )


def _too_many(detail: str) -> Problem:
    headers = [(b"retry-after", str(RETRY_SECONDS).encode())]
    return Problem(429, f"{detail}; try again when some have ended", headers=headers)
