"""What `mycel invite`, `token` and `user` have in common: options that become a grant."""

from __future__ import annotations

import argparse
import os
import re
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.access import tokens, users
from mycel.access.founder import Founder, founder_of
from mycel.access.home import Home, find_home
from mycel.access.key_files import load_key
from mycel.access.tokens import Statement
from mycel.config.sizes import parse_size
from mycel.console.errors import UsageError
from mycel.core.rights import ACTIONS, CAPS, Rights
from mycel.local import swarm_plan
from mycel.swarm.multiaddress import is_peer_id
from mycel.swarm.token_rights import ROLE_BITS

from .secret_arguments import read_secret

_DURATION: Final = re.compile(r"(\d{1,9})\s*(s|m|h|d|w)")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
PRIORITY_MAX: Final = 1_000_000
"""As the API has it."""
EXPIRY_SECONDS_MAX: Final = 100 * 365 * 86_400


def add_limits(parser: argparse.ArgumentParser) -> None:
    """The options of a grant; the same words narrow."""
    parser.add_argument("--user", metavar="NAME", help="whom it speaks for")
    parser.add_argument("--role", action="append", choices=list(ROLE_BITS), help="may be repeated")
    parser.add_argument("--action", action="append", choices=ACTIONS, help="may be repeated")
    parser.add_argument("--priority-max", type=int, metavar="N", help="the highest priority")
    parser.add_argument(
        "--cap",
        action="append",
        metavar="NAME=MOST",
        help=f"the most that one task may ask for ({', '.join(CAPS)}); may be repeated",
    )
    parser.add_argument("--cluster", metavar="NAME", help="for the nodes of one cluster")


def add_expiry(parser: argparse.ArgumentParser, default: str | None, what: str = "") -> None:
    shown = "" if default is None else f" ({default})"
    parser.add_argument(
        "--expires", metavar="TIME", default=default, help=f"{what}such as 12h, 7d, never{shown}"
    )


class Delegation(msgspec.Struct, frozen=True):
    """What the owner lets the holder of a key give on."""

    token: bytes
    secret: bytes

    def sign(self, owner_public: bytes, grant: Statement) -> bytes:
        return tokens.issue_delegated(self.secret, owner_public, self.token, grant)


def add_delegation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--delegation", type=Path, metavar="FILE", help="sign by this delegation…")
    parser.add_argument("--key", type=Path, metavar="FILE", help="…with this secret key")


def delegation(options: argparse.Namespace) -> Delegation | None:
    """None if the owner's key is to sign."""
    if (options.delegation is None) != (options.key is None):
        raise UsageError("--delegation and --key go together")
    if options.delegation is None:
        return None
    token = tokens.from_text(read_secret(str(options.delegation)))
    return Delegation(token, load_key(options.key, "the delegate's key"))


def statement(options: argparse.Namespace) -> Statement:
    if options.user is not None and not users.NAME.fullmatch(options.user):
        raise users.UserRefused(f"{options.user!r} cannot be a user: {users.NAME_RULE}")
    if options.priority_max is not None and abs(options.priority_max) > PRIORITY_MAX:
        raise UsageError(f"--priority-max is from {-PRIORITY_MAX} to {PRIORITY_MAX}")
    peer = getattr(options, "peer", None)
    if peer is not None and not is_peer_id(peer):
        raise UsageError(f"--peer {peer!r} is no peer id: 'mycel peers' shows some")
    return Statement(
        user=options.user,
        roles=tuple(options.role) if options.role else None,
        actions=tuple(options.action) if options.action else None,
        priority_max=options.priority_max,
        caps=dict(_cap(text) for text in options.cap or ()),
        cluster=options.cluster,
        expires_at=expiry(options.expires),
    )


def expiry(text: str | None) -> float | None:
    if text is None or text == "never":
        return None
    found = _DURATION.fullmatch(text)
    if found is None:
        raise UsageError(f"--expires {text!r} is no length of time: write 90s, 30m, 12h, 7d or 4w")
    seconds = int(found[1]) * _UNIT_SECONDS[found[2]]
    if not 0 < seconds <= EXPIRY_SECONDS_MAX:
        raise UsageError(f"--expires {text!r}: write from 1s to 36500d, or never")
    return time.time() + seconds


def _cap(text: str) -> tuple[str, float]:
    name, _, most = text.partition("=")
    if name not in CAPS:
        raise UsageError(f"--cap {text!r}: there are caps for {', '.join(CAPS)}")
    try:
        amount = float(parse_size(most) if name in ("memory", "disk") else most)
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= 1e15:
        raise UsageError(f"--cap {text!r}: write such as cpu_cores=4 or memory=16GB")
    return name, amount


def place(options: argparse.Namespace) -> tuple[Home, str]:
    """The home, and the name of its swarm."""
    home = find_home(options.home, os.environ)
    return home, swarm_plan.swarm_name(swarm_plan.user_settings(home))


def founder(options: argparse.Namespace) -> tuple[Home, Founder]:
    home, swarm = place(options)
    return home, founder_of(home, swarm)


def shown(rights: Rights) -> dict[str, Any]:
    """A token's rights, for JSON and for tables."""
    return {
        "swarm": rights.swarm,
        "user": rights.user or None,
        "roles": sorted(rights.roles),
        "actions": sorted(rights.actions),
        "priority_max": rights.priority_max,
        "caps": dict(rights.caps),
        "cluster": rights.cluster or None,
        "expires_at": rights.expires_at,
        "bound": rights.is_bound,
        "signer": rights.signer,
        "invite_serial": rights.invite or None,
        "joins": rights.joins,
        "admitted_by": rights.admitted_by or None,
        "revocation_ids": [one.hex() for one in rights.revocation_ids],
    }
