"""Thin commands: `config check`, `bench`, `demo`."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

from .output import print_json


def config(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mycel config", description="Check a configuration.")
    parser.add_argument("action", choices=["check"])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(given)
    from mycel.config import ConfigurationError, load

    try:
        configuration = load(options.file, os.environ, {})
    except ConfigurationError as error:
        if not options.json:
            raise
        print_json({"file": str(options.file), "valid": False, "error": str(error)})
        return 1
    if options.json:
        print_json({"file": str(options.file), "valid": True, "set": configuration.origins})
    else:
        print(f"{options.file} is valid: {len(configuration.origins)} settings")
    return 0


def bench(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mycel bench", description="Measure a swarm.")
    parser.add_argument("suite", choices=["quick"])
    parser.add_argument("--json", action="store_true", help="print one flat JSON object")
    options, rest = parser.parse_known_args(given)
    suite = importlib.import_module(f"mycel.bench.{options.suite}")
    return int(suite.main([*rest, *(["--json"] if options.json else [])]))


def demo(given: list[str]) -> int:
    from mycel.demo import main

    return main(given)
