"""`mycel gateway|scheduler|worker|node`: one node in this process, until a signal ends it."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import msgspec


class RoleOptions(msgspec.Struct, frozen=True):
    """What a role's program gets of the command line."""

    role: str
    name: str
    """Of its folder in the home."""
    home: Path | None
    """None: MYCEL_HOME, else ~/.mycel."""
    config: Path | None
    ready_fd: int | None
    """Gets one line of JSON once the role serves."""
    port: int | None
    """Overrides the port of a scheduler's API."""


def gateway(given: list[str]) -> int:
    return _main("gateway", given)


def scheduler(given: list[str]) -> int:
    return _main("scheduler", given)


def worker(given: list[str]) -> int:
    return _main("worker", given)


def node(given: list[str]) -> int:
    return _main("node", given)


def parse(role: str, given: list[str]) -> RoleOptions:
    parser = argparse.ArgumentParser(prog=f"mycel {role}", allow_abbrev=False)
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML")
    parser.add_argument("--home", type=Path, metavar="DIR", help="MYCEL_HOME, else ~/.mycel")
    parser.add_argument("--name", default=role, help="of its folder in the home")
    parser.add_argument("--ready-fd", type=int, metavar="N", help="says there when it serves")
    if role in ("scheduler", "node"):
        parser.add_argument("--port", type=int, metavar="P", help="of the API; 0 picks one")
    options = parser.parse_args(given)
    return RoleOptions(
        role=role,
        name=options.name,
        home=options.home,
        config=options.config,
        ready_fd=options.ready_fd,
        port=getattr(options, "port", None),
    )


def _main(role: str, given: list[str]) -> int:
    options = parse(role, given)
    code: int = importlib.import_module(f"mycel.roles.{role}").main(options)
    return code
