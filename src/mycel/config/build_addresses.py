"""Addresses that a worker's owner lets builds connect to, beside public ones."""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
PORT_MAX: Final = 65_535


class BadAllowance(ValueError):
    """The message is for the worker's owner."""


class Allowance(msgspec.Struct, frozen=True):
    """What is allowed beside public addresses: a network, or a name; at one port, or at all."""

    network: Network | None = None
    host: str = ""
    port: int = 0
    """0 is any."""

    def fits(self, host: str, address: Address, port: int) -> bool:
        if self.port and self.port != port:
            return False
        if self.network is not None:
            return address in self.network
        return host.lower().rstrip(".") == self.host


def parse_allowance(text: str) -> Allowance:
    """`10.0.0.0/8`, `10.1.2.3:3128`, `[fd00::1]:80`, `index.example.org`, with a port or without.
    Raises `BadAllowance`."""
    host, port = text.strip(), ""
    if host.startswith("["):
        host, _, port = host[1:].partition("]")
        if port and not port.startswith(":"):
            raise BadAllowance(f"{text!r} is no address: write [address]:port")
        port = port[1:]
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        raise BadAllowance(f"{text!r} has no port between 1 and {PORT_MAX}")
    number = int(port or 0)
    try:
        return Allowance(ipaddress.ip_network(host, strict=False), port=number)
    except ValueError:
        if not host or not all(one.isalnum() or one in "-._" for one in host):
            raise BadAllowance(
                f"{text!r} is neither an address, nor a network such as 10.0.0.0/8, nor a host"
            ) from None
    return Allowance(host=host.lower().rstrip("."), port=number)
