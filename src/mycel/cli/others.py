"""Thin commands: `bench`, `demo`."""

from __future__ import annotations

import argparse
import importlib
from typing import Final

SUITES: Final = ("quick", "drivers", "matching", "swarm", "blobs", "models", "federation")


def bench(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mycel bench", description="Measure a swarm.")
    parser.add_argument(
        "suite",
        choices=SUITES,
        help="a whole swarm with tasks, drivers alone, decisions alone, hundreds of nodes without "
        "tasks, a file between two nodes, what is added to a model, or jobs among clusters",
    )
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="`mycel bench SUITE --help` lists them"
    )
    # Options belong to the suite, whichever side of its name they stand on.
    first = next((number for number, word in enumerate(given) if word in SUITES), None)
    if first is not None:
        suite = importlib.import_module(f"mycel.bench.{given[first]}")
        return int(suite.main([*given[:first], *given[first + 1 :]]))
    parser.parse_args(given)
    raise AssertionError("argparse has refused it")


def demo(given: list[str]) -> int:
    from mycel.demo import main

    return main(given)
