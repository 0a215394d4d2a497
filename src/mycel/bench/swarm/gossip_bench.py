"""Messages that one node publishes and all others should hear."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Final

import msgspec

from .measure_plan import Plan
from .node_hosts import Houses, Place

LOOK_SECONDS: Final = 0.1
PROBE_SECONDS: Final = 0.5


class Heard(msgspec.Struct, frozen=True):
    share: float
    """Of all pairs of a message and a live node; who publishes does not count."""
    delays: list[float]
    seconds: float
    """From the first publication to the last delivery."""
    cpu_ms_per_delivery: float


async def until_heard_by_all(houses: Houses, gateway: Place, plan: Plan, phase: int) -> int:
    """The gateway says something again and again, until every node has heard one of it, or
    the time is up. How many have."""
    live = len(houses.live)
    ends_at = time.monotonic() + plan.join_seconds_max
    number = 0
    while True:
        await houses.at(gateway, "publish", phase=phase, numbers=(number, number + 1))
        number += 1
        say_again_at = time.monotonic() + PROBE_SECONDS
        while time.monotonic() < say_again_at:
            counts = [count for house in await houses.all("count", phase=phase) for count in house]
            joined: int = 1 + sum(count > 0 for count in counts)  # who publishes is there
            if joined >= live or time.monotonic() > ends_at:
                return joined
            await asyncio.sleep(LOOK_SECONDS)


async def spaced(houses: Houses, plan: Plan, random: Random, phase: int) -> Heard:
    """Each message from another node."""
    before = await houses.usage()
    began = time.monotonic()
    for number in range(plan.messages):
        place = random.choice(houses.live)
        await houses.at(place, "publish", phase=phase, numbers=(number, number + 1))
        next_at = began + (number + 1) * plan.gap_seconds
        await asyncio.sleep(max(0.0, next_at - time.monotonic()))
    return await _collect(houses, plan, phase, began, before["cpu_s"])


async def burst(houses: Houses, plan: Plan, random: Random, phase: int) -> Heard:
    """All from one node, as fast as it can."""
    before = await houses.usage()
    began = time.monotonic()
    place = random.choice(houses.live)
    await houses.at(place, "publish", phase=phase, numbers=(0, plan.messages))
    return await _collect(houses, plan, phase, began, before["cpu_s"])


async def _collect(
    houses: Houses, plan: Plan, phase: int, began: float, cpu_before_s: float
) -> Heard:
    due = plan.messages * (len(houses.live) - 1)
    arrived, quiet_since = -1, time.monotonic()
    while True:
        now_arrived = sum(sum(counts) for counts in await houses.all("count", phase=phase))
        if now_arrived > arrived:
            arrived, quiet_since = now_arrived, time.monotonic()
        if arrived >= due or time.monotonic() - quiet_since > plan.quiet_seconds_max:
            break
        await asyncio.sleep(LOOK_SECONDS)
    after = await houses.usage()
    answers = await houses.all("delays", phase=phase)
    delays = [delay for answer in answers for delay in answer["seconds"]]
    return Heard(
        share=len(delays) / due,
        delays=delays,
        seconds=max(answer["last_at"] for answer in answers) - began,
        cpu_ms_per_delivery=(after["cpu_s"] - cpu_before_s) * 1000 / max(1, len(delays)),
    )
