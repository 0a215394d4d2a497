"""`mycel config check|show` and `mycel reload`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mycel.cli.arguments import home_parser
from mycel.console.tables import print_json

if TYPE_CHECKING:
    from mycel.config import Configuration


def config(given: list[str]) -> int:
    reader = argparse.ArgumentParser(
        prog="mycel config",
        description="'check' says whether a configuration is valid, and which of its keys have "
        "no effect together; 'show' prints every setting with where it comes from.",
    )
    reader.add_argument("action", choices=["check", "show"])
    reader.add_argument("file", type=Path, metavar="FILE", nargs="?", help="TOML")
    reader.add_argument("--json", action="store_true", help="print JSON")
    options = reader.parse_args(given)
    if options.file is None and options.action == "check":
        reader.error("'check' needs a FILE")
    return (_check if options.action == "check" else _show)(options)


def _check(options: argparse.Namespace) -> int:
    from mycel.config import ConfigurationError, load
    from mycel.config.conflicts import ineffective, risks

    try:
        configuration = load(options.file, os.environ, {})
    except ConfigurationError as error:
        if not options.json:
            raise
        print_json({"file": str(options.file), "valid": False, "error": str(error)})
        return 1
    warnings = ineffective(configuration) + risks(configuration)
    origins = configuration.origins
    if options.json:
        document = {"file": str(options.file), "valid": True, "set": origins, "warnings": warnings}
        print_json(document)
        return 0
    print(f"{options.file} is valid: {len(origins)} settings")
    for warning in warnings:
        print(f"warning: {warning}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from mycel.config import load
    from mycel.config.reload import leaves

    configuration: Configuration = load(options.file, os.environ, {})
    values = {key: _plain(value) for key, value in leaves(configuration)}
    if options.json:
        print_json(
            {
                key: {"value": value, "origin": configuration.origins.get(key, "default")}
                for key, value in values.items()
            }
        )
        return 0
    width = max(map(len, values))
    for key, value in values.items():
        origin = configuration.origins.get(key)
        print(f"{key:<{width}}  {value}{f'   ({origin})' if origin else ''}")
    return 0


def _plain(value: Any) -> Any:
    import msgspec

    # Texts and sizes that are more than their TOML type; msgspec encodes no subclasses.
    return msgspec.to_builtins(
        value, enc_hook=lambda one: int(one) if isinstance(one, int) else str(one)
    )


def reload(given: list[str]) -> int:
    """Writes the roles' settings anew, and tells those that run."""
    options = home_parser(
        "reload",
        "Take over a changed mycel.toml in the roles that 'mycel up' started. What only a new "
        "start can change is listed.",
    ).parse_args(given)
    from mycel.local import local_swarm

    changed = local_swarm.reload(options.home)
    failed = any(one.error for one in changed.values())
    if options.json:
        print_json(changed)
        return int(failed)
    if not changed:
        print("nothing runs here: start it with 'mycel up'")
    for name, one in changed.items():
        if one.error:
            print(f"{name}: nothing is taken over: {one.error}")
            continue
        print(f"{name}: {', '.join(one.applied) or 'nothing to take over'}")
        if one.needs_restart:
            print(f"  after a restart: {', '.join(one.needs_restart)}")
    return int(failed)
