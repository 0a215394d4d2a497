"""`mycel invite`: by the owner, or by whom the owner delegated a key to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from mycel.access import invites, tokens
from mycel.access.errors import AccessError, SecretMissing
from mycel.access.founder import owner_public_of
from mycel.access.home import Home, RoleFolder, read_state
from mycel.access.join_shares import Shares, shared_on, shared_out
from mycel.access.key_files import load_key
from mycel.access.tokens import Statement
from mycel.cli import arguments, grant_options
from mycel.client.errors import ClientError
from mycel.console.errors import CommandError, UsageError
from mycel.console.tables import print_json
from mycel.discovery.peer_book import PeerBook
from mycel.swarm.errors import InvalidToken
from mycel.swarm.multiaddress import ON_THIS_MACHINE, objection, peer_in
from mycel.swarm.quic_alternative import without_twins

MET_MAX: Final = 3
"""So many gateways that others run stand in an invite…"""
ADDRESSES_MAX: Final = 2
"""…with so many addresses each: somebody may have to type it."""


class _Role(msgspec.Struct):
    addresses: list[str] = []


def invite(given: list[str]) -> int:
    parser = arguments.home_parser(
        "invite", "Print one string with which a new machine joins the swarm."
    )
    parser.add_argument(
        "--role",
        action="append",
        choices=["worker", "scheduler", "gateway", "cluster"],
        help="what the machine may be (worker); may be repeated",
    )
    grant_options.add_expiry(
        parser, "7d", "how long it can be used, and who joined by it may stay: "
    )
    add_joins(parser)
    grant_options.add_delegation(parser)
    options = parser.parse_args(given)
    made, shares = _invite(options)
    text = invites.to_text(made)
    if options.json:
        rights = tokens.inspect(made.owner_public, made.token)
        where = {"gateways": list(made.gateways), "places": shares.places}
        print_json({"invite": text, **where, **grant_options.shown(rights)})
        return 0
    print(text)
    print(f"mycel: {may_join(shares)}", file=sys.stderr)
    if all(address.startswith(ON_THIS_MACHINE) for address in made.gateways):
        print(
            "mycel: the gateway listens on this machine alone; for others set swarm.listen in "
            "mycel.toml, or name where they reach it with --gateway",
            file=sys.stderr,
        )
    return 0


def add_joins(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--joins", type=int, metavar="N", default=1, help="how many nodes may join by it (1)"
    )
    parser.add_argument(
        "--gateway", action="append", metavar="ADDRESS", help="where to join, instead of our own"
    )


def may_join(shares: Shares) -> str:
    """How many, and where, for whoever made it."""
    nodes = "1 node" if shares.terms.total == 1 else f"{shares.terms.total} nodes"
    if len(shares.terms.joins) == 1:
        return f"{nodes} may join by it, at {', '.join(shares.gateways)}"
    places = "; ".join(f"{one.joins} at {', '.join(one.gateways)}" for one in shares.places)
    return f"{nodes} may join by it: {places}"


def _invite(options: argparse.Namespace) -> tuple[invites.Invite, Shares]:
    roles = tuple(options.role or ("worker",))
    grant = Statement(roles=roles, expires_at=grant_options.expiry(options.expires))
    delegation = grant_options.delegation(options)
    if delegation is not None:
        home, _ = grant_options.place(options)
        public = owner_public_of(home)
        given = tokens.terms_of(public, delegation.token)
        if given is None:
            raise CommandError(
                "the delegation does not allow to invite anybody: ask the owner for one with "
                "--role and --joins"
            )
        # Whom it met does not matter: the delegation says who may admit.
        known = gateways_of(home, options, lambda _: True)
        shares = shared_on(known, given, options.joins)
        own = msgspec.structs.replace(shares.terms, gateways=())
        token = delegation.sign(public, msgspec.structs.replace(grant, invite=own))
        swarm = tokens.inspect(public, token).swarm
    else:
        home, founder = grant_options.founder(options)
        public, swarm = founder.public, founder.swarm
        shares = shares_of(home, options)
        grant = msgspec.structs.replace(grant, invite=shares.terms)
        token = tokens.issue(founder.secret, swarm, grant)
    missing = set(roles) - tokens.inspect(public, token).roles
    if missing:
        raise CommandError(f"the delegation does not allow to invite a {', '.join(missing)}")
    return invites.Invite(swarm, shares.gateways, public, token), shares


def shares_of(home: Home, options: argparse.Namespace) -> Shares:
    """By the owner, at this home's gateways and those that it is connected with. What a peer book
    says is hearsay, and whoever an invite names can make members by it."""
    connected = set() if options.gateway else _connected_gateways(options)
    gateways = gateways_of(home, options, connected.__contains__)
    return shared_out(gateways, _own_peers(home), options.joins)


def gateways_of(
    home: Home, options: argparse.Namespace, is_trusted: Callable[[str], bool]
) -> list[str]:
    """With their peer ids: by their keys they admit. `is_trusted` is asked of those that nodes of
    this home have met."""
    if not options.gateway:
        return _gateways(home, is_trusted)
    for address in options.gateway:
        wrong = objection(address)
        if wrong:
            raise UsageError(f"--gateway {address!r} is no multiaddress: {wrong}")
    own = _peer_of(home, "gateway")
    return [
        address if own is None or peer_in(address) else f"{address}/p2p/{own}"
        for address in options.gateway
    ]


def _connected_gateways(options: argparse.Namespace) -> set[str]:
    """By their tokens, which this home's scheduler has checked; none if it does not run."""
    try:
        with arguments.connect(options) as client:
            items = client.get("/api/v1/peers")["items"]
    except (ClientError, AccessError):
        return set()
    return {one["peer_id"] for one in items if "gateway" in one["roles"]}


def _own_peers(home: Home) -> set[str]:
    """All nodes of this home: gateways among them keep one count."""
    peers = (_peer_of(home, role.name) for role in home.roles())
    return {peer for peer in peers if peer is not None}


def _peer_of(home: Home, role: str) -> str | None:
    try:
        secret = load_key(home.role(role).identity_path, "the identity of a node")
    except SecretMissing:
        return None
    peer: str = tokens.native().identity(secret)[1]
    return peer


def _gateways(home: Home, is_trusted: Callable[[str], bool]) -> list[str]:
    """Our own, those by which a node of this home has joined, and a few that they have met."""
    found: list[str] = []
    for role in home.roles():
        state = read_state(role.state_path, _Role)
        if state is not None and _is_gateway(home, role):
            found += without_twins(state.addresses)
    for role in home.roles():
        joined = read_state(role.joined_path, invites.Joined)
        found += () if joined is None else joined.gateways
    found += _met(home, is_trusted)
    found = [address for address in found if peer_in(address)]
    if found:
        return list(dict.fromkeys(found))[: invites.GATEWAYS_MAX]
    raise CommandError(
        f"no gateway of {home.path} runs: start it ('mycel up'), or say where machines join "
        "with --gateway /ip4/ADDRESS/tcp/PORT/p2p/PEER"
    )


def _is_gateway(home: Home, role: RoleFolder) -> bool:
    """By its token: a folder may have any name."""
    try:
        token = tokens.load_member_token(role.member_token_path)
        return "gateway" in tokens.inspect(owner_public_of(home), token).roles
    except (AccessError, InvalidToken):
        return False


def _met(home: Home, is_trusted: Callable[[str], bool]) -> list[str]:
    met: dict[str, tuple[str, ...]] = {}
    for role in home.roles():
        for record in PeerBook(role.path / "peers.json").records():
            if "gateway" in record.roles and is_trusted(record.peer):
                ways = [one for one in record.addresses if peer_in(one) == record.peer]
                direct = tuple(one for one in without_twins(ways) if "/p2p-circuit" not in one)
                met.setdefault(record.peer, direct[:ADDRESSES_MAX])
    return [address for addresses in list(met.values())[:MET_MAX] for address in addresses]
