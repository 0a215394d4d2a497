"""Which addresses a build may connect to: public ones, and those that the worker's owner allows.

An address counts by what it leads to. An IPv6 address that carries an IPv4 address (mapped, NAT64,
6to4) is judged by both, and an address of this machine is never public. The networks that are kept
for documentation count as public: nothing private is there, and test networks use them as such.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from mycel.config.build_addresses import Address, Allowance

_CLOSED_V4: Final = tuple(
    (ipaddress.IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "an unspecified address"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a private address of a provider"),
        ("127.0.0.0/8", "a loopback address"),
        ("168.63.129.16/32", "a cloud's service for its machines"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.88.99.0/24", "a reserved address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a reserved address"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
    )
)
_CLOSED_V6: Final = tuple(
    (ipaddress.IPv6Network(network), kind)
    for network, kind in (
        ("::1/128", "a loopback address"),
        ("::/128", "an unspecified address"),
        ("fc00::/7", "a private address"),
        ("fe80::/9", "a link-local address"),
        ("ff00::/8", "a multicast address"),
        ("2001::/23", "a reserved address"),
    )
)
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR: Final = ipaddress.IPv6Network("2002::/16")
_WEB_PORTS: Final = (80, 443)
_PRIVILEGED_PORTS: Final = 1024
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def allowance_of(url: str) -> Allowance | None:
    """For the server of a URL that the owner has set: that host, at that port alone."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    return Allowance(host=parts.hostname.rstrip("."), port=port) if parts.hostname else None


def refusal(host: str, address: Address, port: int, allowed: Iterable[Allowance]) -> str:
    """Why nobody may connect there; empty if one may."""
    address = _plain(address)
    if any(one.fits(host, address, port) for one in allowed):
        return ""
    if port < _PRIVILEGED_PORTS and port not in _WEB_PORTS:
        return f"port {port} is not one of the web's"
    closed = _closed(address)
    if not closed and _is_own(address):
        closed = "an address of this machine"
    return f"{address} is {closed}" if closed else ""


def _plain(address: Address) -> Address:
    """Without a zone, and as IPv4 if it is that."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _MAPPED:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return ipaddress.IPv6Address(int(address))
    return address


def _closed(address: Address) -> str:
    """What kind of address it is, if it is not public."""
    if isinstance(address, ipaddress.IPv4Address):
        return next((kind for network, kind in _CLOSED_V4 if address in network), "")
    for network, kind in _CLOSED_V6:
        if address in network:
            return kind
    if address in _NAT64:
        return _closed(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address in _SIX_TO_FOUR:
        return _closed(ipaddress.IPv4Address(int(address) >> 80 & 0xFFFFFFFF))
    return "" if address in _GLOBAL_V6 else "a reserved address"


def _is_own(address: Address) -> bool:
    """Whether it leads to this machine: the kernel then takes it as the sender's too. Nothing is
    sent to find out."""
    family = socket.AF_INET if isinstance(address, ipaddress.IPv4Address) else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((str(address), 9))
        except OSError:  # there is no way there at all
            return False
        return bool(ipaddress.ip_address(asking.getsockname()[0].partition("%")[0]) == address)
