"""Thin commands: `bench`, `demo`."""

from __future__ import annotations

import argparse
import importlib
from typing import Final

SUITES: Final = {
    "quick": "mycel.bench.quick.quick_bench",
    "drivers": "mycel.bench.drivers.driver_bench",
    "matching": "mycel.bench.matching.matching_bench",
    "dispatch": "mycel.bench.dispatch_bench",
    "swarm": "mycel.bench.swarm",
    "blobs": "mycel.bench.drivers.blob_bench",
    "models": "mycel.bench.drivers.model_bench",
    "client": "mycel.bench.client.client_bench",
    "federation": "mycel.bench.federation_bench",
    "sim": "mycel.bench.simulation.simulation_bench",
}


def bench(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mycel bench", description="Measure a swarm.")
    parser.add_argument(
        "suite",
        choices=SUITES,
        help="a whole swarm with tasks, drivers alone, decisions alone, a scheduler alone, "
        "hundreds of nodes without tasks, a file between two nodes, what is added to a model, "
        "Python functions beside Ray, "
        "jobs among clusters, or the simulator beside SimPy",
    )
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="`mycel bench SUITE --help` lists them"
    )
    # Options belong to the suite, whichever side of its name they stand on.
    first = next((number for number, word in enumerate(given) if word in SUITES), None)
    if first is not None:
        suite = importlib.import_module(SUITES[given[first]])
        return int(suite.main([*given[:first], *given[first + 1 :]]))
    parser.parse_args(given)
    raise AssertionError("argparse has refused it")


def demo(given: list[str]) -> int:
    from mycel.demo import main

    return main(given)
