"""What a job asks of a cluster, as one tree, whatever format it was written in.

    node ×2 (shared)                      a request: a type, a count, what it contains
    └── slot ×4                           a slot: what one task gets, for itself alone
        ├── core ×2
        └── gpu  ×1

Readers convert Flux's, rainbow's and Mycel's own formats to it and keep the original beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .constraints import EVERYWHERE, Constraint
from .counts import Count

SLOT: Final = "slot"
DEPTH_MAX: Final = 32
REQUESTS_MAX: Final = 1_000


class Require(msgspec.Struct, frozen=True):
    """Something in a subsystem that a vertex must be attached to."""

    subsystem: str
    field: str = "type"
    match: str = ""
    """Exactly this; empty is any value."""
    versions: str = ""
    """A range, such as `>=0.5.1,<=0.5.5`; empty is any version."""


class Request(msgspec.Struct, frozen=True):
    type: str
    count: Count
    contents: tuple[Request, ...] = ()
    exclusive: bool | None = None
    """None leaves it to where the request stands: inside a slot it is exclusive."""
    label: str = ""
    unit: str = ""
    identifiers: str = ""
    requires: tuple[Require, ...] = ()


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    resources: tuple[Request, ...]
    duration_seconds: int = 0
    """0 is without end."""
    constraint: Constraint = EVERYWHERE
    skips_levels: bool = False
    """Whether a request may lie deeper than one level below the request that contains it: in
    rainbow's and Mycel's formats a node's cores may lie in sockets. In Flux's they may not."""
    name: str = ""
    tasks: tuple[tuple[str, ...], ...] = ()
    attributes: dict[str, Any] = {}
    dialect: str = ""
    original: str = ""


def walk(requests: tuple[Request, ...]) -> Iterator[Request]:
    """Each request of the tree, parents first."""
    for request in requests:
        yield request
        yield from walk(request.contents)


def least_needs(requests: tuple[Request, ...]) -> dict[str, int]:
    """How much of each type the tree takes at least. Slots side by side are alternatives."""
    needs: dict[str, int] = {}
    alternatives = []
    for request in requests:
        inside = {
            kind: amount * request.count.minimum
            for kind, amount in least_needs(request.contents).items()
        }
        if request.type == SLOT:
            alternatives.append(inside)
            continue
        needs[request.type] = needs.get(request.type, 0) + request.count.minimum
        _add(needs, inside)
    if alternatives:
        first, *others = alternatives
        common = {
            kind: min(amount, *(one.get(kind, 0) for one in others)) if others else amount
            for kind, amount in first.items()
        }
        _add(needs, {kind: amount for kind, amount in common.items() if amount})
    return needs


def _add(needs: dict[str, int], more: dict[str, int]) -> None:
    for kind, amount in more.items():
        needs[kind] = needs.get(kind, 0) + amount
