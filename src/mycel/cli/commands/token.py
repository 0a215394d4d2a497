"""`mycel token …`, `mycel user …`."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.access import invites, tokens, users
from mycel.access.errors import TokenMistyped
from mycel.access.founder import owner_public_of
from mycel.access.home import Home
from mycel.access.join_shares import Shares
from mycel.access.key_files import load_or_create_key
from mycel.access.token_blocks import revocation_ids
from mycel.cli import arguments, grant_options
from mycel.cli.command_parser import run_action
from mycel.cli.revocation import revoke
from mycel.cli.secret_arguments import read_secret
from mycel.console.errors import CommandError, UsageError
from mycel.console.tables import Column, print_json, print_table
from mycel.core.rights import CANCEL, READ, SUBMIT, Rights
from mycel.membership.revocations import read_records
from mycel.swarm.errors import InvalidToken

from .invite import add_joins, may_join, shares_of

DELEGATION: Final = "delegation"
"""The code of a token that is one."""
"""How the extension's refusal of one begins."""
REVOCATION_ID: Final = re.compile("[0-9a-fA-F]{64}")
USER_ACTIONS: Final = (SUBMIT, READ, CANCEL)
"""What a user may unless told otherwise."""


# mycel token


def token(given: list[str]) -> int:
    """`mycel token create|inspect|narrow|revoke|key`."""
    return run_action("token", _TOKEN_ACTIONS, given)


def _create(given: list[str]) -> int:
    parser = arguments.home_parser(
        "token create", "Sign a token with the owner's key, or a delegated one."
    )
    grant_options.add_limits(parser)
    grant_options.add_expiry(parser, "30d")
    parser.add_argument("--peer", metavar="ID", help="bind it to this peer")
    parser.add_argument(
        "--delegate",
        metavar="KEY",
        help="to this public key (hex, of 'mycel token key'), which may give it on",
    )
    add_joins(parser)
    grant_options.add_delegation(parser)
    options = parser.parse_args(given)
    grant = grant_options.statement(options)
    delegation = grant_options.delegation(options)
    _check_member(options, delegation is not None)
    if delegation is not None:
        home, _ = grant_options.place(options)
        public = owner_public_of(home)
        made = delegation.sign(public, grant)
    else:
        home, founder = grant_options.founder(options)
        public = founder.public
        if options.delegate is not None:
            key = _public_key(options.delegate)
            shares = shares_of(home, options) if grant.roles else None
            if shares is not None:
                grant = msgspec.structs.replace(grant, invite=shares.terms)
            made = tokens.delegate(founder.secret, founder.swarm, key, grant)
            _print_token(options, made, None, shares)
            return 0
        if grant.roles:
            grant = msgspec.structs.replace(grant, peer=options.peer)
        made = tokens.issue(founder.secret, founder.swarm, grant)
    if options.peer is not None and not grant.roles:
        made = tokens.bind(public, made, options.peer)
    rights = tokens.inspect(public, made)
    _print_token(options, made, rights)
    if not rights.roles and not rights.actions:
        print("mycel: it allows nothing: give it an --action or a --role", file=sys.stderr)
    return 0


def _check_member(options: argparse.Namespace, by_delegate: bool) -> None:
    """Roles are for one node, which the owner names, or a gateway of an invite."""
    if options.role and by_delegate:
        raise UsageError("a delegate makes members by invites: 'mycel invite --delegation …'")
    if options.role and options.peer is None and options.delegate is None:
        raise UsageError(
            "a token with a --role is for one node: name it with --peer, or make an invite "
            "('mycel invite --role …')"
        )


def _public_key(text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise UsageError("--delegate takes an Ed25519 public key: 64 digits of hex")
    return key


def _print_token(
    options: argparse.Namespace, made: bytes, rights: Rights | None, shares: Shares | None = None
) -> None:
    """`rights` is None of a delegation, whose invites have `shares`."""
    text = tokens.to_text(made)
    if options.json:
        facts: dict[str, Any] = {"revocation_ids": [one.hex() for one in revocation_ids(made)]}
        if rights is not None:
            facts = grant_options.shown(rights)
        elif shares is not None:
            facts |= {"joins": shares.terms.total, "places": shares.places}
        print_json({"token": text, **facts})
        return
    print(text)
    if shares is not None:
        print(f"mycel: in all, {may_join(shares)}", file=sys.stderr)


def _token_or_own(options: argparse.Namespace, home: Home) -> tuple[bytes, bytes | None]:
    """The one that was given, else the home's."""
    if options.token is None:
        return tokens.from_text(tokens.load_api_token(home.token_path)), None
    return _given_token(options.token)


def _given_token(text: str) -> tuple[bytes, bytes | None]:
    """The token, and the owner's public key if it came in an invite."""
    text = read_secret(text)
    if text.startswith("mycel-invite-"):
        found = invites.from_text(text)
        return found.token, found.owner_public
    return tokens.from_text(text), None


def _inspect(given: list[str]) -> int:
    parser = arguments.home_parser(
        "token inspect", "Say what a token or an invite allows, and whether it holds."
    )
    parser.add_argument("token", nargs="?", help="or a file, or - for standard input (the home's)")
    options = parser.parse_args(given)
    home, swarm = grant_options.place(options)
    found, public = _token_or_own(options, home)
    revoked = {record[:32] for record in read_records(home.revocations_path)}
    rights = _rights(public or owner_public_of(home), found)
    facts: dict[str, Any]
    if rights is None:
        ids = revocation_ids(found)
        terms = tokens.terms_of(public or owner_public_of(home), found)
        is_revoked = any(one in revoked for one in ids)
        facts = {
            "state": "revoked" if is_revoked else "a delegation: its key gives on what it grants",
            "joins": None if terms is None else terms.total,
            "revocation_ids": [one.hex() for one in ids],
        }
    else:
        state = _state(rights, swarm if public is None else rights.swarm, revoked)
        facts = {"state": state, **grant_options.shown(rights)}
    if options.json:
        print_json(facts)
        return 0
    if rights is not None:
        facts["expires_at"] = _when(rights.expires_at)
    rows = [(name, _plain(value)) for name, value in facts.items()]
    print_table(("FACT", Column("VALUE", wraps=True)), rows)
    return 0


def _rights(public: bytes, token: bytes) -> Rights | None:
    """None of a delegation, which gives whoever presents it nothing."""
    try:
        return tokens.inspect(public, token)
    except InvalidToken as error:
        if error.code != DELEGATION:
            raise
        return None


def _state(rights: Rights, swarm: str, revoked: set[bytes]) -> str:
    if rights.is_revoked(revoked):
        return "revoked"
    if rights.is_over(time.time()):
        return "expired"
    return "valid" if rights.swarm == swarm else "of another swarm"


def _plain(value: Any) -> str:
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {most:.16g}" for name, most in value.items())
    return str(value)


def _when(unix: float | None) -> str:
    """Dates have four digits for the year: what ends later never does."""
    if unix is None or unix >= datetime.max.replace(tzinfo=UTC).timestamp():
        return "never"
    return f"{datetime.fromtimestamp(unix, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _narrow(given: list[str]) -> int:
    parser = arguments.home_parser("token narrow", "Take rights away from a token; needs no key.")
    parser.add_argument("token", nargs="?", help="or a file, or - for standard input (the home's)")
    grant_options.add_limits(parser)
    grant_options.add_expiry(parser, None)
    parser.add_argument("--peer", metavar="ID", help="bind it to this peer")
    options = parser.parse_args(given)
    home, _ = grant_options.place(options)
    found, public = _token_or_own(options, home)
    public = public or owner_public_of(home)
    made = tokens.narrow(public, found, grant_options.statement(options))
    if options.peer is not None:
        made = tokens.bind(public, made, options.peer)
    rights = tokens.inspect(public, made)
    if rights.expires_at == 0:
        raise CommandError("nothing would be left: a user narrows to itself or to 'user/part'")
    _print_token(options, made, rights)
    return 0


def _revoke(given: list[str]) -> int:
    parser = arguments.home_parser(
        "token revoke", "End a token, and all that was made from it, in the whole swarm."
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "token", nargs="?", help="or a file, - for standard input, or a revocation id (hex)"
    )
    which.add_argument(
        "--peer", help="a connected node's: its id, a unique part of it, or its worker's name"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="also everything made from the same first block, such as a peer's invite",
    )
    options = parser.parse_args(given)
    home, founder = grant_options.founder(options)
    by_peer = options.peer is not None
    text = _of_peer(options) if by_peer else read_secret(options.token)
    ids: list[tuple[bytes, float | None]]
    if REVOCATION_ID.fullmatch(text):
        ids = [(bytes.fromhex(text), None)]
    else:
        try:
            found, public = _given_token(text)
        except TokenMistyped as error:
            raise TokenMistyped(f"{error}; revocation ids have 64 digits of hex") from None
        rights = _rights(public or founder.public, found)
        of_blocks = revocation_ids(found)
        chosen = of_blocks[0 if options.all else -1]
        ids = [(chosen, None if rights is None else rights.expires_at)]
    _tell_revoked(options, revoke(home, founder, ids), [one.hex() for one, _ in ids])
    if by_peer and not options.all:
        print(
            "mycel: whoever has the invite that it joined by can join again; --all ends that too",
            file=sys.stderr,
        )
    return 0


def _of_peer(options: argparse.Namespace) -> str:
    """The id of its token, or of its invite, of which nobody may have a copy any more."""
    with arguments.connect(options) as client:
        items = client.get("/api/v1/peers")["items"]
    meant = [one for one in items if options.peer in (one["peer_id"], one["name"])]
    meant = meant or [one for one in items if options.peer in one["peer_id"]]
    meant = [one for one in meant if options.peer and one["revocation_ids"]]
    if len(meant) != 1:
        what = "several connected peers are" if meant else "no connected peer is"
        raise CommandError(f"{what} {options.peer!r}; 'mycel peers' lists them")
    return str(meant[0]["revocation_ids"][0 if options.all else -1])


def _key(given: list[str]) -> int:
    parser = arguments.home_parser(
        "token key", "Print the public half of a key that the owner may delegate to."
    )
    parser.add_argument("file", type=Path, help="of the secret half; created if there is none")
    options = parser.parse_args(given)
    public: bytes = tokens.native().identity(load_or_create_key(options.file, "the key"))[0]
    if options.json:
        print_json({"public": public.hex(), "file": str(options.file)})
    else:
        print(public.hex())
    return 0


def _tell_revoked(options: argparse.Namespace, taken: int | None, ids: list[str]) -> None:
    if options.json:
        print_json({"revoked": ids, "spread": taken is not None})
    elif taken is None:
        print("revoked; no scheduler runs here: the others hear of it when a node here starts")
    else:
        print("revoked, and spreading")


_TOKEN_ACTIONS: Final[dict[str, Callable[[list[str]], int]]] = {
    "create": _create,
    "inspect": _inspect,
    "narrow": _narrow,
    "revoke": _revoke,
    "key": _key,
}


# mycel user


def user(given: list[str]) -> int:
    """`mycel user add|list|disable`."""
    return run_action("user", _USER_ACTIONS, given)


def _add(given: list[str]) -> int:
    parser = arguments.home_parser(
        "user add", "Give somebody an API token. It is shown once, and kept nowhere."
    )
    parser.add_argument("name")
    grant_options.add_limits(parser)
    grant_options.add_expiry(parser, "365d")
    options = parser.parse_args(given)
    if options.user is not None or options.role is not None:
        raise UsageError("a user has a name and no roles: leave --user and --role away")
    options.user = options.name
    options.action = options.action or list(USER_ACTIONS)
    home, founder = grant_options.founder(options)
    added, made = users.add(home, founder, grant_options.statement(options))
    if options.json:
        print_json({"token": tokens.to_text(made), **msgspec.structs.asdict(added)})
    else:
        print(tokens.to_text(made))
    return 0


def _list(given: list[str]) -> int:
    options = arguments.home_parser("user list", "List whom the owner gave tokens to.").parse_args(
        given
    )
    home, _ = grant_options.place(options)
    found = users.listed(home)
    if options.json:
        print_json({"items": found, "next": None})
        return 0
    rows = [
        (
            one.name,
            "disabled" if one.disabled_at is not None else "enabled",
            ", ".join(one.actions),
            _when(one.expires_at),
        )
        for one in found
    ]
    print_table(("USER", "STATE", "ACTIONS", "EXPIRES"), rows)
    return 0


def _disable(given: list[str]) -> int:
    parser = arguments.home_parser("user disable", "Revoke all tokens of a user.")
    parser.add_argument("name")
    options = parser.parse_args(given)
    home, founder = grant_options.founder(options)
    ended = users.enabled(home, options.name)
    ids = [(bytes.fromhex(one.revocation_id), one.expires_at) for one in ended]
    taken = revoke(home, founder, ids)
    users.disable(home, ended)
    _tell_revoked(options, taken, [one.hex() for one, _ in ids])
    return 0


_USER_ACTIONS: Final[dict[str, Callable[[list[str]], int]]] = {
    "add": _add,
    "list": _list,
    "disable": _disable,
}
