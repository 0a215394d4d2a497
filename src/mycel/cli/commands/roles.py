"""`mycel gateway|scheduler|worker|node`: one node in this process, until a signal ends it.

A role is imported when its command runs; the rest of the command line never imports one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mycel.cli.command_parser import CommandParser

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
    detach: bool = False
    """It goes on by itself; the command returns when it serves."""


def gateway(given: list[str]) -> int:
    options = parse("gateway", given)
    if options.detach:
        return _detached(options)
    from mycel.roles.gateway.program import main

    return main(options)


def scheduler(given: list[str]) -> int:
    options = parse("scheduler", given)
    if options.detach:
        return _detached(options)
    from mycel.roles.scheduler.program import main

    return main(options)


def worker(given: list[str]) -> int:
    options = parse("worker", given)
    if options.detach:
        return _detached(options)
    helper = _started_helper()
    from mycel.roles.worker.program import main

    return main(options, helper)


def node(given: list[str]) -> int:
    options = parse("node", given)
    if options.detach:
        return _detached(options)
    helper = _started_helper()
    from mycel.roles.combined_node import main

    return main(options, helper)


def parse(role: str, given: list[str]) -> RoleOptions:
    parser = CommandParser(prog=f"mycel {role}", allow_abbrev=False)
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
    parser.add_argument(
        "--detach",
        action="store_true",
        help="leave it running and return when it serves; 'mycel down' stops it",
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
        detach=options.detach,
    )


def _detached(options: RoleOptions) -> int:
    from mycel.access.home import find_home
    from mycel.cli.secret_arguments import read_secret
    from mycel.local.role_processes import start_detached

    home = find_home(options.home, os.environ)
    arguments: list[str] = []
    if options.config is not None:
        arguments += ["--config", str(options.config.absolute())]
    if options.port is not None:
        arguments += ["--port", str(options.port)]
    join = read_secret(options.join) if options.join else ""
    ready = start_detached(options.role, options.name, home, arguments, join)
    print(f"{options.name} runs as process {ready.pid}; 'mycel down' stops it")
    return 0


def _started_helper() -> HelperHandle:
    """Forked before the role and all that it needs are imported, so that the helper stays small."""
    from mycel.drivers.helper.spawn_helper import start_helper

    return start_helper()
