"""Graph backends, chosen by name. Other packages bring theirs as entry points of the group."""

from __future__ import annotations

from typing import Final, cast

from mycel.core.federation.errors import FederationError
from mycel.plugins import installed

from .graph_backend import GraphBackend, UnknownCluster
from .memory_backend import MemoryBackend

GROUP: Final = "mycel.graph_backends"
BUILT_IN: Final = ("memory", "networkx")


class UnknownBackend(FederationError):
    """The configuration names a backend that is not installed."""


def make_backend(name: str = "memory", whole: frozenset[str] = frozenset()) -> GraphBackend:
    """`whole` has types that are never shared, such as `node`. Raises UnknownBackend."""
    if name == "memory":
        return MemoryBackend(whole)
    if name == "networkx":
        try:
            from .networkx_backend import NetworkxBackend
        except ImportError:
            raise UnknownBackend("NetworkX is missing: pip install 'mycel[networkx]'") from None
        return NetworkxBackend(whole)
    found = installed(GROUP)
    if name not in found:
        known = ", ".join((*BUILT_IN, *sorted(found)))
        raise UnknownBackend(f"there is no graph backend {name!r}; there are {known}")
    return cast("GraphBackend", found[name].load()(whole))


__all__ = [
    "BUILT_IN",
    "GROUP",
    "GraphBackend",
    "MemoryBackend",
    "UnknownBackend",
    "UnknownCluster",
    "make_backend",
]
