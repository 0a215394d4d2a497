"""What a gateway does for others, by name.

Four are built in: `bootstrap` hands newcomers a sample of peers; `dht`, `relay` and `autonat`
are done by the libp2p node itself. Further ones come from other packages, as entry points of
the group `mycel.gateway_services`: each names a function without arguments that makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from mycel.core.identifiers import PeerId
from mycel.plugins import installed
from mycel.swarm.interface import Swarm

BUILT_IN: Final = frozenset({"bootstrap", "dht", "relay", "autonat"})
GROUP: Final = "mycel.gateway_services"


class GatewayService(Protocol):
    """Called on the loop's thread; what it raises ends the gateway."""

    def start(self, swarm: Swarm, note: Callable[..., None]) -> None:
        """`note(event, **fields)` writes a line of the log."""
        ...

    def peer_connected(self, peer: PeerId, roles: frozenset[str]) -> None: ...
    def peer_left(self, peer: PeerId) -> None: ...
    def stop(self) -> None: ...


class UnknownService(Exception):
    """The configuration's fault."""


def load_services(names: Sequence[str]) -> list[GatewayService]:
    """Those of `names` that are not built in. Raises `UnknownService`."""
    wanted = [name for name in dict.fromkeys(names) if name not in BUILT_IN]
    if not wanted:
        return []
    offered = installed(GROUP)
    unknown = [name for name in wanted if name not in offered]
    if unknown:
        known = ", ".join(sorted(BUILT_IN | offered.keys()))
        raise UnknownService(
            f"[gateway] services: there is no service {unknown[0]!r}; there are {known}"
        )
    made: list[GatewayService] = [offered[name].load()() for name in wanted]
    return made
