"""Where the roles of `mycel up` listen: on this machine alone, or where `[swarm] listen` says.

The gateway takes those addresses as they are, since others are told of them. The other roles
take the same interfaces, each at a port of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_LOOPBACK: Final = ("/ip4/127.0.0.1/tcp/0",)
_PORT: Final = re.compile(r"(?<=/tcp/|/udp/)\d+")
_EVERYWHERE: Final = (("/ip4/0.0.0.0/", "/ip4/127.0.0.1/"), ("/ip6/::/", "/ip6/::1/"))


def gateway_port(settings: Mapping[str, Any]) -> int:
    """The one that the user's settings name for it; 0 if they leave that to us."""
    ports = (int(found[0]) for one in _configured(settings) if (found := _PORT.search(one)))
    return next((port for port in ports if port != 0), 0)


def of_gateway(settings: Mapping[str, Any], port: int) -> list[str]:
    return _distinct(
        _PORT.sub(lambda found: found[0] if int(found[0]) else str(port), one, count=1)
        for one in _configured(settings)
    )


def of_others(settings: Mapping[str, Any], port: int) -> list[str]:
    return _distinct(_PORT.sub(str(port), one, count=1) for one in _configured(settings))


def from_here(address: str) -> str:
    """How a role on the same machine dials who listens there."""
    for everywhere, here in _EVERYWHERE:
        if address.startswith(everywhere):
            return here + address.removeprefix(everywhere)
    return address


def _configured(settings: Mapping[str, Any]) -> tuple[str, ...]:
    found: tuple[str, ...] = tuple(settings.get("swarm", {}).get("listen", ()))
    return found or _LOOPBACK


def _distinct(addresses: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(addresses))
