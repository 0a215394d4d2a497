"""Finding the one node that has a capability, from nodes that have nothing to do with it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from random import Random
from typing import Final

import msgspec

from mycel.core.identifiers import PeerId

from .measure_plan import Plan
from .node_hosts import Houses, Place

TRIES: Final = 40
"""To find a node that is not connected to the provider; a small swarm may have none."""


class Offer(msgspec.Struct, frozen=True):
    """A capability that one node alone has."""

    key: str
    place: Place
    provider: PeerId


class Lookups:
    def __init__(self) -> None:
        self.found = 0
        self.unconnected = 0
        self.milliseconds: list[float] = []
        self.missing: Counter[str] = Counter()
        """What was not found, for those who wonder."""


async def make_offers(houses: Houses, plan: Plan, random: Random) -> list[Offer]:
    """From nodes of different processes; returns when the network knows of each."""
    count = min(plan.capabilities, plan.nodes // 3)
    places = random.sample(houses.live[1:], count)
    offers = []
    for number, place in enumerate(places):
        key = f"mycel/bench/capability-{number}"
        offers.append(Offer(key, place, PeerId(await houses.at(place, "offer", key=key))))
    for offer in offers:
        await _await_published(houses, plan, random, offer)
    return offers


async def _await_published(houses: Houses, plan: Plan, random: Random, offer: Offer) -> None:
    """Publication has no end that anybody tells: somebody else asks until it is there. What
    happens later is left to the figures."""
    ends_at = time.monotonic() + plan.settle_seconds_max
    while time.monotonic() < ends_at:
        asker = random.choice([place for place in houses.live if place != offer.place])
        missing, _ = await _look_up(houses, plan, asker, offer)
        if not missing:
            return
        await asyncio.sleep(0.2)


async def look_up_all(houses: Houses, plan: Plan, random: Random, offers: list[Offer]) -> Lookups:
    """One after the other, each of a random capability from a random node."""
    done = Lookups()
    there = [offer for offer in offers if offer.place in houses.live]
    for _ in range(plan.lookups):
        offer = random.choice(there)
        asker, is_connected = await _choose_asker(houses, random, offer)
        missing, milliseconds = await _look_up(houses, plan, asker, offer)
        done.found += not missing
        done.missing.update([", ".join(missing)] if missing else [])
        done.unconnected += not is_connected
        done.milliseconds.append(milliseconds)
    return done


async def _choose_asker(houses: Houses, random: Random, offer: Offer) -> tuple[Place, bool]:
    others = [place for place in houses.live if place != offer.place]
    for place in random.sample(others, min(TRIES, len(others))):
        if not await houses.at(place, "is_connected", peer=offer.provider):
            return place, False
    return random.choice(others), True


async def _look_up(
    houses: Houses, plan: Plan, asker: Place, offer: Offer
) -> tuple[list[str], float]:
    missing, milliseconds = await houses.at(
        asker,
        "look_up",
        key=offer.key,
        provider=offer.provider,
        seconds_max=plan.lookup_seconds_max,
    )
    return list(missing), float(milliseconds)
