"""What the commands' arguments have in common."""

from __future__ import annotations

import argparse

from mycel.client import Client


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """With `--home` and `--json`, which all commands have that talk to a swarm."""
    made = argparse.ArgumentParser(
        prog=f"mycel {command}", description=description, allow_abbrev=False
    )
    made.add_argument(
        "--home", metavar="DIR", help="the swarm's folder (MYCEL_HOME, else ~/.mycel)"
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def connect(options: argparse.Namespace) -> Client:
    return Client.from_home(options.home)
