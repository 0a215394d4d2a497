"""`mycel invite`: by the owner, or by whom the owner delegated a key to."""

from __future__ import annotations

import argparse
import sys
from typing import Final

import msgspec

from mycel.access import invites, tokens
from mycel.access.founding import owner_public_of
from mycel.access.home import Home, read_state
from mycel.access.tokens import Statement
from mycel.discovery.peerbook import PeerBook
from mycel.swarm.multiaddrs import ON_THIS_MACHINE, objection
from mycel.swarm.twins import without_twins

from . import arguments, grants
from .errors import CommandError, UsageError
from .output import print_json

MET_MAX: Final = 3
"""So many gateways that others run stand in an invite…"""
ADDRESSES_MAX: Final = 2
"""…with so many addresses each: somebody may have to type it."""


class _Role(msgspec.Struct):
    addresses: list[str] = []


def invite(given: list[str]) -> int:
    parser = arguments.parser(
        "invite", "Print one string with which a new machine joins the swarm."
    )
    parser.add_argument(
        "--role",
        action="append",
        choices=["worker", "scheduler", "gateway", "cluster"],
        help="what the machine may be (worker); may be repeated",
    )
    grants.add_expiry(parser, "7d", "how long it can be used, and who joined by it may stay: ")
    parser.add_argument(
        "--gateway", action="append", metavar="ADDRESS", help="where to join, instead of our own"
    )
    grants.add_delegation(parser)
    options = parser.parse_args(given)
    made = _invite(options)
    if options.json:
        rights = tokens.inspect(made.owner_public, made.token)
        text = invites.to_text(made)
        print_json({"invite": text, "gateways": list(made.gateways), **grants.shown(rights)})
        return 0
    print(invites.to_text(made))
    if all(address.startswith(ON_THIS_MACHINE) for address in made.gateways):
        print(
            "mycel: the gateway listens on this machine alone; for others set swarm.listen in "
            "mycel.toml, or name where they reach it with --gateway",
            file=sys.stderr,
        )
    return 0


def _invite(options: argparse.Namespace) -> invites.Invite:
    roles = tuple(options.role or ("worker",))
    for address in options.gateway or ():
        wrong = objection(address)
        if wrong:
            raise UsageError(f"--gateway {address!r} is no multiaddress: {wrong}")
    grant = Statement(roles=roles, expires_at=grants.expiry(options.expires))
    delegation = grants.delegation(options)
    if delegation is not None:
        home, _ = grants.place(options)
        public = owner_public_of(home)
        token = delegation.sign(public, grant)
        swarm = tokens.inspect(public, token).swarm
    else:
        home, founder = grants.founder(options)
        public, swarm = founder.public, founder.swarm
        token = tokens.issue(founder.secret, swarm, grant)
    missing = set(roles) - tokens.inspect(public, token).roles
    if missing:
        raise CommandError(f"the delegation does not allow to invite a {', '.join(missing)}")
    gateways = tuple(options.gateway or _gateways(home))
    return invites.Invite(swarm, gateways, public, token)


def _gateways(home: Home) -> list[str]:
    """Our own, those by which a node of this home has joined, and a few that they have met: a
    newcomer finds its way while any of them lives."""
    state = read_state(home.role("gateway").state_path, _Role)
    found = [] if state is None else without_twins(state.addresses)
    for role in home.roles():
        joined = read_state(role.joined_path, invites.Joined)
        found += () if joined is None else joined.gateways
    found += _met(home)
    if found:
        return list(dict.fromkeys(found))[: invites.GATEWAYS_MAX]
    raise CommandError(
        f"no gateway of {home.path} runs: start it ('mycel up'), or say where machines join "
        "with --gateway /ip4/ADDRESS/tcp/PORT/p2p/PEER"
    )


def _met(home: Home) -> list[str]:
    met: dict[str, tuple[str, ...]] = {}
    for role in home.roles():
        for record in PeerBook(role.path / "peers.json").records():
            if "gateway" in record.roles:
                ways = without_twins(record.addresses)
                direct = tuple(one for one in ways if "/p2p-circuit" not in one)
                met.setdefault(record.peer, direct[:ADDRESSES_MAX])
    return [address for addresses in list(met.values())[:MET_MAX] for address in addresses]
