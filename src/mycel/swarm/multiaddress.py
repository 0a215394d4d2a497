"""Addresses that somebody has typed, such as `/ip4/10.0.0.1/tcp/4001/p2p/12D3KooW…`.

They are checked where they are read, with what is wrong: the network would find it out only
when it dials one, and has nobody to tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from mycel.core.identifiers import PeerId

EXAMPLE: Final = "/ip4/0.0.0.0/tcp/4001"
EVERYWHERE: Final = "/ip4/0.0.0.0/tcp/0"
ON_THIS_MACHINE: Final = ("/ip4/127.", "/ip6/::1/")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
_PEER: Final = re.compile(r"(12D3KooW|Qm)[1-9A-HJ-NP-Za-km-z]{44}")
_PORT_MAX: Final = 65_535


def _is_ip(kind: type[IPv4Address] | type[IPv6Address]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            kind(text)
        except ValueError:
            return False
        return "%" not in text  # the network knows no zones

    return check


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _PORT_MAX


def is_peer_id(text: str) -> bool:
    return _PEER.fullmatch(text) is not None


def peer_in(address: str) -> PeerId | None:
    """The peer id that an address ends in."""
    _, found, peer = address.rpartition("/p2p/")
    return PeerId(peer) if found and "/" not in peer else None


_WITH_VALUE: Final[dict[str, Callable[[str], bool]]] = {
    "ip4": _is_ip(IPv4Address),
    "ip6": _is_ip(IPv6Address),
    "dns": _is_name,
    "dns4": _is_name,
    "dns6": _is_name,
    "dnsaddr": _is_name,
    "tcp": _is_port,
    "udp": _is_port,
    "p2p": is_peer_id,
}
_ALONE: Final = ("quic-v1", "p2p-circuit")


def objection(text: str) -> str:
    """What is wrong with it; empty if nothing is."""
    first, *parts = text.split("/")
    if first or len(parts) < 2:
        return f"it is not like {EXAMPLE!r}"
    words = iter(parts)
    for protocol in words:
        if protocol in _ALONE:
            continue
        is_value = _WITH_VALUE.get(protocol)
        if is_value is None:
            return f"there is no {protocol!r}, but {', '.join((*_WITH_VALUE, *_ALONE))}"
        value = next(words, "")
        if not is_value(value):
            return f"{value!r} cannot follow {protocol!r}"
    return ""
