"""Conducts the measurement, part after part."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from random import Random
from typing import Final

from mycel.bench.percentiles import median, percentile

from . import gossip_bench, lookups
from .child_calls import Child
from .measure_plan import Plan
from .node_hosts import Houses, Place, open_houses
from .swarm_report import SwarmBenchFigures

GATEWAY: Final = Place(0, 0)
REQUESTS: Final = ((1, "request_ms_p50", "ms_p50"), (32, "requests_per_s", "per_s"))
"""So many in flight give this figure, by that name of the caller's."""
PROBE, SPACED, BURST, AFTER_KILL = range(4)
"""Phases of gossip: each counts its own messages."""


def measure(plan: Plan, scale: float) -> SwarmBenchFigures:
    return asyncio.run(_measure(plan, scale))


async def _measure(plan: Plan, scale: float) -> SwarmBenchFigures:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        exchange = await _exchange(plan)
        async with open_houses(plan) as houses:
            swarm = await _swarm(plan, houses)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    sizes = {"nodes": plan.nodes, "processes": plan.processes, "scale": scale}
    fields = {**sizes, **exchange, **swarm}
    return SwarmBenchFigures(**fields)  # type: ignore[arg-type]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_missing(done: lookups.Lookups) -> None:
    for what, times in done.missing.items():
        _say(f"  not found {times} times: {what}")


async def _exchange(plan: Plan) -> dict[str, float]:
    """Between two processes, before the machine is full of nodes. Ways take turns, so that
    what disturbs one disturbs all."""
    _say("two nodes: requests, bulk, hello; plain TCP beside them")
    owner = os.urandom(32).hex()
    children = [await Child.start("mycel.bench.swarm.stream_exchange") for _ in range(2)]
    try:
        echo, caller = children
        there = await echo.call("echo", owner=owner)
        await caller.call("start", owner=owner, address=there["address"])
        rounds = {"hello_ms_p50": await caller.call("hellos", count=plan.hellos)}
        await caller.call("open")

        def keep(name: str, value: float) -> None:
            rounds.setdefault(name, []).append(value)

        for _ in range(plan.exchange_rounds):
            for in_flight, name, figure in REQUESTS:
                order = {"in_flight": in_flight, "seconds": plan.exchange_seconds}
                keep(name, (await caller.call("requests", **order))[figure])
                plain = await caller.call("tcp_requests", port=there["tcp_port"], **order)
                keep(f"tcp_{name}", plain[figure])
            keep("bulk_mb_per_s", await caller.call("bulk", total=plan.bulk_bytes))
        return {name: median(values) for name, values in rounds.items()}
    finally:
        for child in children:
            await child.kill()


async def _swarm(plan: Plan, houses: Houses) -> dict[str, float]:
    random = Random(plan.seed)
    _say(f"{plan.nodes} nodes in {plan.processes} processes join through one gateway")
    empty = await houses.usage()
    gateway = await houses.populate(os.urandom(32).hex())
    began = time.monotonic()
    order = {"at_once": plan.joins_at_once, "seconds_max": plan.answer_seconds_max}
    await houses.all("join", gateway=gateway, **order)
    joined = await gossip_bench.until_heard_by_all(houses, GATEWAY, plan, PROBE)
    join_s = time.monotonic() - began
    figures: dict[str, float] = {"joined": joined, "join_s": join_s}
    _say(f"{joined} have joined in {join_s:.1f} s; {plan.lookups} look-ups")
    offers = await lookups.make_offers(houses, plan, random)
    found = await lookups.look_up_all(houses, plan, random, offers)
    _say_missing(found)
    figures |= {
        "lookups_found": found.found,
        "lookups_unconnected": found.unconnected,
        "lookup_ms_p50": percentile(found.milliseconds, 50),
        "lookup_ms_p95": percentile(found.milliseconds, 95),
    }
    _say("until no connection comes or goes")
    await houses.settle(plan.settled_seconds, plan.settle_seconds_max)
    figures |= await _gossip(plan, houses, random)
    full = await houses.usage()
    figures |= {
        "connections_per_node": full["connections"] / plan.nodes,
        "mb_per_node": (full["pss_mb"] - empty["pss_mb"]) / plan.nodes,
    }
    return figures | await _after_kill(plan, houses, random, offers)


async def _gossip(plan: Plan, houses: Houses, random: Random) -> dict[str, float]:
    _say(f"{plan.messages} gossip messages, one every {plan.gap_seconds:g} s")
    spaced = await gossip_bench.spaced(houses, plan, random, SPACED)
    _say(f"{plan.messages} gossip messages at once")
    burst = await gossip_bench.burst(houses, plan, random, BURST)
    return {
        "gossip_delivered": spaced.share,
        "gossip_ms_p50": percentile(spaced.delays, 50) * 1000,
        "gossip_ms_p99": percentile(spaced.delays, 99) * 1000,
        "gossip_cpu_ms_per_delivery": spaced.cpu_ms_per_delivery,
        "gossip_burst_delivered": burst.share,
        "gossip_burst_s": burst.seconds,
        "gossip_burst_cpu_ms_per_delivery": burst.cpu_ms_per_delivery,
    }


async def _after_kill(
    plan: Plan, houses: Houses, random: Random, offers: list[lookups.Offer]
) -> dict[str, float]:
    """SIGKILL of whole processes, but neither of the gateway's (the only one there is) nor of
    one with something to look for."""
    houses_there = {place.house for place in houses.live} - {GATEWAY.house, offers[0].place.house}
    killed = random.sample(sorted(houses_there), plan.kills)
    nodes = sum(place.house in killed for place in houses.live)
    _say(f"SIGKILL of {len(killed)} processes with {nodes} nodes; {plan.lookups} look-ups, gossip")
    for house in killed:
        await houses.kill(house)
    found = await lookups.look_up_all(houses, plan, random, offers)
    _say_missing(found)
    again = await gossip_bench.spaced(houses, plan, random, AFTER_KILL)
    return {
        "killed": nodes,
        "lookups_found_after_kill": found.found,
        "lookup_ms_p95_after_kill": percentile(found.milliseconds, 95),
        "gossip_delivered_after_kill": again.share,
    }
