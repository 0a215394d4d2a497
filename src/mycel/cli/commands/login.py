"""`mycel login URL`, `mycel logout`, `mycel context`: the swarms that this machine's commands
can talk to, and which of them they do."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from mycel.access.tokens import from_text
from mycel.cli.arguments import json_parser
from mycel.cli.secret_arguments import SECRET_LENGTH_MAX, read_secret
from mycel.client import Client, Unauthorized, contexts
from mycel.client.contexts import HOME_CONTEXT, Context, Contexts
from mycel.client.endpoint import TOKEN_VARIABLE, Wanted, find
from mycel.console.errors import CommandError, UsageError
from mycel.console.tables import print_json, print_table

NOT_ALLOWED: Final = 403
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def login(given: list[str]) -> int:
    options = json_parser(
        "login", "Keep a swarm's address and a token for it, and let commands here talk to it."
    )
    options.add_argument("url", metavar="URL", help="of its API, such as https://lab:8080")
    options.add_argument(
        "--token",
        metavar="TOKEN",
        help="itself, a file, or - for standard input; else MYCEL_TOKEN, else it is asked for",
    )
    options.add_argument("--name", metavar="NAME", help="of the context (the URL's host)")
    options.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="what an https:// address is held against"
    )
    chosen = options.parse_args(given)
    trust = "" if chosen.ca_file is None else str(chosen.ca_file.resolve())
    try:
        endpoint = find(Wanted(chosen.url, "unused", ca_file=trust), os.environ)
    except ValueError as error:
        raise UsageError(str(error)) from None
    context = Context(endpoint.address.text, _token(chosen.token), trust)
    from_text(context.token)
    who = _tried(context)
    name = chosen.name or _name_of(context.api)
    known = contexts.read(os.environ)
    known.add(name, context)
    contexts.write(os.environ, known)
    if chosen.json:
        print_json({"context": name, "api": context.api, **who})
    else:
        print(f"logged in to {context.api} as {who['user']}; this is now context {name!r}")
    if not endpoint.address.secure and endpoint.address.host not in LOOPBACK:
        print(
            f"mycel: warning: {context.api} is not encrypted: whoever sees the traffic can take "
            "the token; the scheduler serves https:// with tls_cert and tls_key",
            file=sys.stderr,
        )
    return 0


def _token(given: str | None) -> str:
    if given is not None:
        return read_secret(given)
    if known := os.environ.get(TOKEN_VARIABLE):
        return known.strip()
    if sys.stdin.isatty():
        return getpass.getpass("Token: ").strip()
    return sys.stdin.read(SECRET_LENGTH_MAX).strip()


def _tried(context: Context) -> dict[str, Any]:
    """Whose token it is, as the swarm says."""
    with Client(context.api, context.token, ca_file=context.ca_file) as client:
        try:
            who: dict[str, Any] = client.get("/api/v1/token")
        except Unauthorized as error:
            if error.status != NOT_ALLOWED:
                raise
            return {"user": "a user who may not read"}  # good for something else, such as submit
    return who


def _name_of(api: str) -> str:
    """The host, and the port where that is not the usual one."""
    parts = urlsplit(api)
    name = (parts.hostname or "").replace(":", ".")
    return name if parts.port in (None, 443, 8080) else f"{name}:{parts.port}"


def logout(given: list[str]) -> int:
    options = json_parser("logout", "Forget a swarm's address and token.")
    options.add_argument("name", nargs="?", metavar="CONTEXT", help="else the current one")
    chosen = options.parse_args(given)
    known = contexts.read(os.environ)
    name = chosen.name or known.current
    if not name:
        raise CommandError("nothing is logged in to; 'mycel context' lists what is known")
    known.remove(name)
    return _kept(known, f"context {name!r} is forgotten", as_json=chosen.json)


def context(given: list[str]) -> int:
    options = json_parser(
        "context",
        "List the swarms that were logged in to, or choose the one that commands talk to. "
        f"{HOME_CONTEXT!r} is the swarm that 'mycel up' starts here.",
    )
    options.add_argument("action", nargs="?", choices=("list", "use", "remove"), default="list")
    options.add_argument("name", nargs="?", metavar="CONTEXT")
    chosen = options.parse_args(given)
    if (chosen.action == "list") != (chosen.name is None):
        options.error("'use' and 'remove' take a CONTEXT, 'list' takes none")
    known = contexts.read(os.environ)
    if chosen.action == "use":
        known.use(chosen.name)
        return _kept(known, f"commands talk to {chosen.name!r}", as_json=chosen.json)
    if chosen.action == "remove":
        known.remove(chosen.name)
        return _kept(known, f"context {chosen.name!r} is forgotten", as_json=chosen.json)
    _list(known, as_json=chosen.json)
    return 0


def _kept(known: Contexts, said: str, *, as_json: bool) -> int:
    contexts.write(os.environ, known)
    if as_json:
        print_json({"current": known.shown_current})
    else:
        print(said)
    return 0


def _list(known: Contexts, *, as_json: bool) -> None:
    """Never with the tokens."""
    current = known.shown_current
    rows = [(HOME_CONTEXT, "")] + [(name, one.api) for name, one in sorted(known.contexts.items())]
    if as_json:
        items = [{"name": n, "api": api or None, "current": n == current} for n, api in rows]
        print_json({"items": items})
        return
    print_table(
        ("", "CONTEXT", "API"),
        [
            ("*" if name == current else "", name, api or "of 'mycel up' on this machine")
            for name, api in rows
        ],
    )
