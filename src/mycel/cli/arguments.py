"""What the commands' arguments have in common."""

from __future__ import annotations

import argparse

from mycel.client import Client

from .command_parser import CommandParser
from .secret_arguments import read_secret


def parser(command: str, description: str) -> CommandParser:
    """Of a command that talks to a swarm: which one, and `--json`."""
    made = home_parser(command, description)
    add_swarm(made)
    return made


def add_swarm(made: argparse.ArgumentParser) -> None:
    where = made.add_argument_group("the swarm (else where 'mycel login' was, else this machine's)")
    where.add_argument("--api", metavar="URL", help="of its scheduler (MYCEL_API)")
    where.add_argument(
        "--token", metavar="TOKEN", help="for --api: itself, a file, or - (MYCEL_TOKEN)"
    )
    where.add_argument("--context", metavar="NAME", help="one of 'mycel context' (MYCEL_CONTEXT)")


def home_parser(command: str, description: str) -> CommandParser:
    """Of a command about the swarm of a home folder: which one, and `--json`."""
    made = json_parser(command, description)
    made.add_argument(
        "--home", metavar="DIR", help="the swarm's folder (MYCEL_HOME, else ~/.mycel)"
    )
    return made


def json_parser(command: str, description: str) -> CommandParser:
    """Of a command about no one swarm: `--json` alone."""
    made = CommandParser(prog=f"mycel {command}", description=description, allow_abbrev=False)
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def connect(options: argparse.Namespace) -> Client:
    """`options` are of `parser`, or of `home_parser`, whose swarm is the home's."""
    if "api" not in options:
        return Client.from_home(options.home)
    token = None if options.token is None else read_secret(options.token)
    return Client(api=options.api, token=token, context=options.context, home=options.home)
