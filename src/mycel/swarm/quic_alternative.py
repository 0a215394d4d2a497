"""Two ways to one place: a node listens for QUIC at the port of its TCP address.

TCP carries bulk at twice the speed, and tells at once when nobody listens. So QUIC is what is
tried second, where TCP does not get through, and what punches holes into routers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_TCP: Final = re.compile(r"^(/ip[46]/[^/]+)/tcp/(\d+)(/p2p/.+)?$")


def quic_twin(tcp_address: str, port: int | None = None) -> str | None:
    """The QUIC address beside a TCP address, at its port or another; none beside others. Of a
    way through a gateway: the gateway's."""
    parts = _TCP.match(tcp_address)
    if parts is None:
        return None
    place, own_port, peer = parts.groups()
    return f"{place}/udp/{own_port if port is None else port}/quic-v1{peer or ''}"


def is_quic(address: str) -> bool:
    """Whether its first hop is QUIC."""
    return "/quic-v1" in address.partition("/p2p/")[0]


def port_of(tcp_address: str) -> int | None:
    parts = _TCP.match(tcp_address)
    return None if parts is None else int(parts[2])


def without_twins(addresses: Iterable[str]) -> list[str]:
    """One way to each place: TCP where there are both."""
    kept = list(addresses)
    twins = {quic_twin(address) for address in kept}
    return [address for address in kept if address not in twins]
