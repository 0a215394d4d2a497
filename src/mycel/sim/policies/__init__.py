"""The policies, by name. Each module is imported only when its policy is asked for."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import Final

from mycel.sim.errors import ScenarioError
from mycel.sim.policy import Policy

POLICIES: Final[dict[str, tuple[str, str, str]]] = {
    "ideal": ("ideal", "Ideal", "every task starts at once: the lower bound"),
    "central-fifo": (
        "central.central_queue",
        "CentralFifo",
        "one queue, one scheduler that knows everything",
    ),
    "central-sjf": ("central.central_queue", "CentralSjf", "the same, shortest estimate first"),
    "easy-backfill": (
        "central.easy",
        "EasyBackfill",
        "FIFO; later jobs fill gaps before the first one",
    ),
    "best-fit": ("central.packing", "BestFit", "central; the server that is left with least"),
    "packing": ("central.packing", "Packing", "central; the server with most in use"),
    "dot-product": (
        "central.packing",
        "DotProduct",
        "central; where demand and free resources align",
    ),
    "random-fit": ("central.packing", "RandomFit", "central; any server with room"),
    "fgd": ("central.fgd", "FragmentationGradient", "central; least growth of GPU fragmentation"),
    "random": ("random", "Random", "any server; waits in its queue"),
    "power-of-d": ("power_of_d", "PowerOfD", "asks d servers, takes the shortest queue"),
    "batch-sampling": ("batch_sampling", "BatchSampling", "asks d × m servers for m tasks at once"),
    "sparrow": ("sparrow", "Sparrow", "batch sampling with late binding"),
    "hawk": ("hawk", "Hawk", "long jobs centrally, short ones by probes; idle servers steal"),
    "eagle": ("hawk", "Eagle", "Hawk, but short tasks avoid servers with long ones"),
    "work-stealing": ("work_stealing", "WorkStealing", "random queues; idle servers steal"),
    "least-loaded": ("least_loaded", "LeastLoaded", "the emptiest server of a stale snapshot"),
    "dht": ("dht", "DhtLookUp", "looks servers up by capability in a distributed hash table"),
    "directory": ("directory", "Directory", "asks a replicated central directory for places"),
    "gossip": ("gossip", "GossipNearest", "here if there is room, else the nearest believed to"),
    "random-walk": ("random_walk", "RandomWalk", "here if there is room, else a random neighbour"),
    "homes": (
        "homes.homes_policy",
        "Homes",
        "own workers first, then forward to schedulers with room",
    ),
}
"""Name → module, class, one line about it."""


def policy_named(name: str) -> type[Policy]:
    if name not in POLICIES:
        close = get_close_matches(name, POLICIES, 1)
        hint = f"did you mean {close[0]!r}?" if close else "'mycel sim list' lists them"
        raise ScenarioError(f"there is no policy {name!r}: {hint}")
    module, class_name, _ = POLICIES[name]
    found: type[Policy] = getattr(importlib.import_module(f"{__name__}.{module}"), class_name)
    assert issubclass(found, Policy), "the table names policies"
    return found
