"""`mycel cluster register|list|show|delete|rotate|invite|state|subsystem`: the clusters of a home.

They write to the home's folder alone and need no running swarm. Tokens and secrets are printed
once, when they are made; the home keeps their hashes.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any, Final

from mycel.access.home import find_home
from mycel.config import load
from mycel.config.settings import Clusters
from mycel.console.errors import UsageError
from mycel.console.tables import print_json, print_table
from mycel.core.federation.registration import ClusterRecord
from mycel.federation.jgf import read_file
from mycel.federation.registry.cluster_registry import FOLDER, ClusterRegistry, open_registry

CONFIGURATION: Final = "mycel.toml"
DAY_SECONDS: Final = 86_400.0
DAYS_MAX: Final = 36_500.0


def add(commands: Any) -> None:
    register = _command(commands, "register", "make a cluster known by a name", _register)
    register.add_argument("name")
    register.add_argument("graph", type=Path, help="JSON Graph Format, Fluxion's or rainbow's")
    register.add_argument("--state", action="append", default=[], metavar="KEY=VALUE")
    register.add_argument("--group", default="", help="its clusters share one token")
    register.add_argument("--token-days", type=_days, default=0.0, help="0 is for ever")
    register.add_argument(
        "--silent-after", type=_seconds, default=0.0, metavar="SECONDS",
        help="without a sign of life for so long it is taken for gone; 0 is never",
    )  # fmt: skip
    _command(commands, "list", "the clusters that are known", _list)
    show = _command(commands, "show", "what is known of a cluster", _show)
    show.add_argument("name")
    delete = _command(commands, "delete", "forget a cluster and its graph", _delete)
    delete.add_argument("name")
    rotate = _command(commands, "rotate", "a new token, or secret; the old one ends", _rotate)
    rotate.add_argument("name")
    rotate.add_argument("--token-days", type=_days, default=0.0, help="0 is for ever")
    which = rotate.add_mutually_exclusive_group()
    which.add_argument("--secret", action="store_true", help="its agent's instead of its users'")
    which.add_argument("--revoke", action="store_true", help="end the token and make no new one")
    state = _command(commands, "state", "change or show a cluster's state", _state)
    state.add_argument("name")
    state.add_argument("change", nargs="*", metavar="KEY=VALUE", help="KEY= removes it")
    invite = _command(commands, "invite", "a secret by which clusters may register", _invite)
    invite.add_argument("--days", type=_days, default=1.0, help="0 is for ever; default 1")
    invite.add_argument("--revoke", action="store_true", help="end it and make no new one")
    subsystem = _command(commands, "subsystem", "software, I/O, GPUs of a cluster", _subsystem)
    subsystem.add_argument("action", choices=("add", "remove"))
    subsystem.add_argument("name")
    subsystem.add_argument("subsystem")
    subsystem.add_argument("file", type=Path, nargs="?", help="for add: JSON Graph Format")


def registry_of(options: argparse.Namespace) -> ClusterRegistry:
    return open_registry(find_home(options.home, os.environ).path / FOLDER, time.time)


def settings_of(options: argparse.Namespace) -> Clusters:
    """Of the home's configuration, for what flags leave open."""
    path = find_home(options.home, os.environ).path / CONFIGURATION
    return load(path if path.exists() else None, os.environ, {}).clusters


def _command(commands: Any, name: str, help_: str, function: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_)
    add_home(parser)
    parser.set_defaults(function=function)
    return parser


def add_home(parser: argparse.ArgumentParser) -> None:
    # Before or behind the subcommand: what is not given here must not undo what was given there.
    parser.add_argument(
        "--home", type=Path, default=argparse.SUPPRESS, help="default: $MYCEL_HOME or ~/.mycel"
    )
    parser.add_argument("--json", action="store_true")


def _register(options: argparse.Namespace) -> int:
    made = registry_of(options).register(
        options.name,
        read_file(options.graph),
        state=state_change(options.state),
        group=options.group,
        token_seconds=options.token_days * DAY_SECONDS,
        silent_after_seconds=options.silent_after,
    )
    if options.json:
        print_json({**_shown(made.record), "token": made.token, "secret": made.secret})
        return 0
    print(f"{options.name}: {_amounts(made.record)}")
    if made.token:
        print(f"token, for its users:   {made.token}")
    else:
        print(f"its users have the token of the group {options.group!r}")
    print(f"secret, for its agent:  {made.secret}")
    return 0


def _list(options: argparse.Namespace) -> int:
    records = registry_of(options).records()
    if options.json:
        print_json([_shown(record) for record in records])
        return 0
    now = time.time()
    rows = [
        (
            record.name,
            record.group or "-",
            *(str(record.summary.totals.get(type_, 0)) for type_ in ("node", "core", "gpu")),
            ", ".join(record.subsystems) or "-",
            "silent" if record.is_silent(now) else "known",
        )
        for record in records
    ]
    print_table(("NAME", "GROUP", "NODES", "CORES", "GPUS", "SUBSYSTEMS", "STATUS"), rows)
    return 0


def _show(options: argparse.Namespace) -> int:
    shown = _shown(registry_of(options).record(options.name))
    if options.json:
        print_json(shown)
    else:
        print_table(("WHAT", "VALUE"), [(key, str(value)) for key, value in shown.items()])
    return 0


def _delete(options: argparse.Namespace) -> int:
    registry_of(options).delete(options.name)
    return 0


def _rotate(options: argparse.Namespace) -> int:
    registry = registry_of(options)
    if options.revoke:
        registry.revoke_token(options.name)
        return 0
    if options.secret:
        made = {"secret": registry.rotate_secret(options.name)}
    else:
        seconds = options.token_days * DAY_SECONDS
        made = {"token": registry.rotate_token(options.name, seconds)}
    if options.json:
        print_json(made)
    else:
        print(*made.values())
    return 0


def _invite(options: argparse.Namespace) -> int:
    registry = registry_of(options)
    if options.revoke:
        registry.revoke_invitation()
        return 0
    secret = registry.invite(options.days * DAY_SECONDS)
    if options.json:
        print_json({"registration_secret": secret})
    else:
        print(secret)
    return 0


def _state(options: argparse.Namespace) -> int:
    registry = registry_of(options)
    record = registry.record(options.name)
    if options.change:
        record = registry.set_state(options.name, state_change(options.change))
    if options.json:
        print_json(record.state)
    else:
        print_table(("KEY", "VALUE"), [(key, str(one)) for key, one in record.state.items()])
    return 0


def _subsystem(options: argparse.Namespace) -> int:
    registry = registry_of(options)
    if options.action == "remove":
        registry.remove_subsystem(options.name, options.subsystem)
    elif options.file is None:
        raise UsageError("'subsystem add' needs a FILE")
    else:
        registry.add_subsystem(options.name, options.subsystem, read_file(options.file))
    return 0


def state_change(texts: list[str]) -> dict[str, float | str | bool | None]:
    """`nodes_free=3`, `open=true`, `region=eu`, and `region=` for nothing."""
    found: dict[str, float | str | bool | None] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"{text!r} is not of the form KEY=VALUE")
        found[key] = _value(value)
    return found


def _value(text: str) -> float | str | bool | None:
    if text in ("true", "false", ""):
        return {"true": True, "false": False, "": None}[text]
    try:
        return int(text) if len(text) < 20 else float(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def _shown(record: ClusterRecord) -> dict[str, Any]:
    """Without the hashes: nobody has a use for them."""
    return {
        "name": record.name,
        "group": record.group,
        "summary": record.summary.totals,
        "graph": record.graph.digest,
        "graph_bytes": record.graph.size,
        "subsystems": {name: kept.digest for name, kept in record.subsystems.items()},
        "state": record.state,
        "registered_at": record.registered_at,
        "seen_at": record.seen_at,
        "silent": record.is_silent(time.time()),
    }


def _amounts(record: ClusterRecord) -> str:
    return ", ".join(f"{amount} {type_}" for type_, amount in record.summary.totals.items())


def _days(text: str) -> float:
    return _number(text, DAYS_MAX, "days")


def _seconds(text: str) -> float:
    return _number(text, DAYS_MAX * DAY_SECONDS, "seconds")


def _number(text: str, most: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of {what}") from None
    if not 0 <= value <= most:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {most:.0f}")
    return value
