"""Thin commands: `bench`, `demo`."""

from __future__ import annotations

import argparse
import importlib


def bench(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mycel bench", description="Measure a swarm.")
    parser.add_argument(
        "suite",
        choices=["quick", "drivers", "matching", "swarm", "blobs"],
        help="a whole swarm with tasks, drivers alone, decisions alone, hundreds of nodes without "
        "tasks, or a file between two nodes",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options, rest = parser.parse_known_args(given)
    suite = importlib.import_module(f"mycel.bench.{options.suite}")
    return int(suite.main([*rest, *(["--json"] if options.json else [])]))


def demo(given: list[str]) -> int:
    from mycel.demo import main

    return main(given)
