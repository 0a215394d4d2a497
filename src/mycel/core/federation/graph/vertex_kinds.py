"""Subtrees that are equal, told apart once.

Most of a cluster is repetition: a thousand nodes with the same cores and memory. Two vertices
are of one *kind* if no job could tell their subtrees apart, names aside. A matcher answers for
a kind once and multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class Attachment(msgspec.Struct, frozen=True):
    """A vertex of a subsystem (software, I/O, GPUs) that a containment vertex is attached to."""

    subsystem: str
    identifier: str
    fields: tuple[tuple[str, str], ...] = ()


class Kind(msgspec.Struct, frozen=True, eq=False):
    number: int
    type: str
    size: int
    up: bool
    unit: str
    properties: frozenset[str]
    attachments: tuple[Attachment, ...]
    """Its own and those of all vertices above it."""
    children: tuple[tuple[Kind, int], ...]
    """Each kind of child, and how many there are of it."""
    child_types: frozenset[str]
    totals: Mapping[str, int]
    """How much of each type lies below it."""
    most: Mapping[str, int]
    """How much of each type lies right below one vertex of the subtree, where it is most."""
    vertices: int
    """In the subtree, itself included."""
    has_nodes: bool
    """Whether constraints can apply to it or to anything below it."""


NODE_TYPES: Final = frozenset(("node", "storage_node"))


class KindTable:
    """Gives each kind its number. Clusters that share a table share answers too."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[Any, ...], Kind] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def intern(
        self,
        type_: str,
        size: int,
        children: Mapping[Kind, int],
        *,
        up: bool = True,
        unit: str = "",
        properties: frozenset[str] = frozenset(),
        attachments: tuple[Attachment, ...] = (),
    ) -> Kind:
        below = sorted(children.items(), key=lambda item: item[0].number)
        numbers = tuple((kind.number, count) for kind, count in below)
        key = (type_, size, up, unit, properties, attachments, numbers)
        known = self._kinds.get(key)
        if known is not None:
            return known
        totals: dict[str, int] = {}
        most: dict[str, int] = {}
        for kind, count in below:
            most[kind.type] = most.get(kind.type, 0) + kind.size * count
        for kind, count in below:
            for name, amount in kind.most.items():
                most[name] = max(most.get(name, 0), amount)
            totals[kind.type] = totals.get(kind.type, 0) + kind.size * count
            for name, amount in kind.totals.items():
                totals[name] = totals.get(name, 0) + amount * count
        made = Kind(
            number=len(self._kinds),
            type=type_,
            size=size,
            up=up,
            unit=unit,
            properties=properties,
            attachments=attachments,
            children=tuple(below),
            child_types=frozenset(kind.type for kind, _ in below),
            totals=totals,
            most=most,
            vertices=1 + sum(kind.vertices * count for kind, count in below),
            has_nodes=type_ in NODE_TYPES or any(kind.has_nodes for kind, _ in below),
        )
        self._kinds[key] = made
        return made
