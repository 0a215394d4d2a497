"""`mycel gateway|scheduler|worker|node`: one node in this process, until a signal ends it.

A role is imported when its command runs; the rest of the command line never imports one.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from mycel.drivers.helper.spawn_helper import HelperHandle

STDIN_MAX = 65_536


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
    options = parse("gateway", given)
    from mycel.roles.gateway.program import main

    return main(options)


def scheduler(given: list[str]) -> int:
    options = parse("scheduler", given)
    from mycel.roles.scheduler.program import main

    return main(options)


def worker(given: list[str]) -> int:
    options = parse("worker", given)
    helper = _started_helper()
    from mycel.roles.worker.program import main

    return main(options, helper)


def node(given: list[str]) -> int:
    options = parse("node", given)
    helper = _started_helper()
    from mycel.roles.combined_node import main

    return main(options, helper)


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


def _started_helper() -> HelperHandle:
    """Forked before the role and all that it needs are imported, so that the helper stays small."""
    from mycel.drivers.helper.spawn_helper import start_helper

    return start_helper()
