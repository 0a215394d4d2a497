"""The settings of homes, and which home a server has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from mycel.sim.policy import Options
from mycel.topology.splitmix import mix_pair

UNKNOWN_SHARE: Final = 8
"""A home that was not heard of lately is taken to have one slot in so many free."""


class HomesOptions(Options, frozen=True, kw_only=True):
    shares: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """Homes that get a part of what does not fit here."""
    asks: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """Homes asked for one job in all."""
    homes_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 32
    slots_per_home: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 500
    """A home has at least so many cores, unless fewer than three would remain."""
    cold_link_ms: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 4.0
    """What the first message between two schedulers costs both of them."""
    dials_per_home: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 100
    """A scheduler dials homes until it has links for `asks`, and until each home has about so many
    schedulers. From then on it stays with these: a dial costs more than it brings."""
    fresh_ms: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 10.0
    """What a home was heard to have free counts for this long; then it is unknown."""

    # What follows needs the reference engine.
    gossip_ms: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """How often homes gossip the sum of what they have free; 0 for never."""
    fetch_ahead: bool = False
    """Whether a server gets tasks before it has room, if the round trip is long."""
    preempt: bool = False
    """Whether a task may stop tasks of lower priority to have their room."""
    gpu_offers: Annotated[int, msgspec.Meta(ge=0, le=64)] = 8
    """Homes asked what a task with GPUs would cost in fragmentation; 0 to ask none."""
    return_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 30.0
    """After this long, servers go back to a home that has returned."""

    @property
    def needs_reference(self) -> str:
        """Why the fast engine cannot run it, or nothing."""
        if self.gossip_ms:
            return "its homes gossip"
        if self.fetch_ahead:
            return "its homes fetch ahead"
        return "its policy preempts" if self.preempt else ""


def home_count(options: HomesOptions, schedulers: int, slots: int) -> int:
    return min(schedulers, options.homes_max, max(3, slots // options.slots_per_home))


def link_count(options: HomesOptions, schedulers: int, homes: int) -> int:
    """With so many links a scheduler has enough."""
    return max(options.asks, options.dials_per_home * homes // schedulers)


def home_of(server: int, homes: int) -> int:
    """By rendezvous hash."""
    return home_among(server, range(homes))


def home_among(server: int, homes: Iterable[int]) -> int:
    return min(homes, key=lambda home: mix_pair(home, server))
