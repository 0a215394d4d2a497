"""`mycel gateway|scheduler|worker|node`: one node in this process, until a signal ends it."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

import msgspec

STDIN_MAX = 65_536
PROGRAMS = {
    "gateway": "mycel.roles.gateway.program",
    "scheduler": "mycel.roles.scheduler.program",
    "worker": "mycel.roles.worker.program",
    "node": "mycel.roles.combined_node",
}


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
    join: str | None = None
    """An invite, or a file that holds one."""


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
    parser.add_argument(
        "--join",
        metavar="INVITE",
        help="become a member by an invite: the string, a file, or - for standard input; "
        "MYCEL_JOIN does the same and is not visible to other users",
    )
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
        # Taken out of the environment: what this process starts must not see it.
        join=(sys.stdin.read(STDIN_MAX) if options.join == "-" else options.join)
        or os.environ.pop("MYCEL_JOIN", None)
        or None,
    )


def _main(role: str, given: list[str]) -> int:
    options = parse(role, given)
    ends = []
    if role in ("worker", "node"):
        # Before the role and all that it needs are imported: the helper stays small.
        from mycel.drivers.helper.spawn_helper import start_helper

        ends.append(start_helper())
    code: int = importlib.import_module(PROGRAMS[role]).main(options, *ends)
    return code
