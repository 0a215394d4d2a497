"""What vertices offer: how many there are of each type and size, and what they could serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from mycel.core.federation.graph.vertex_kinds import Kind

from .division import Able, Supply
from .request_levels import Level

NOBODY: Final[Able] = frozenset()
ALONE: Final[Able] = frozenset((0,))
"""Of a type that is requested once."""


class Served(NamedTuple):
    """A type that is requested several times side by side, and which of the requests a vertex
    could serve."""

    type: str
    able: Able


Key = str | Served
Candidates = Mapping[Key, Mapping[int, int]]
Found = dict[Key, dict[int, int]]
NOTHING: Final[Candidates] = {}
NOTHING_OF_IT: Final[Mapping[int, int]] = {}


def collect(found: Found, child: Kind, answer: Candidates | None, count: int, level: Level) -> None:
    """Adds what `count` children of one kind offer."""
    if answer is None:
        return
    if child.type in level.types:
        sizes = found.setdefault(child.type, {})
        sizes[child.size] = sizes.get(child.size, 0) + count
    for name, offered in answer.items():
        sizes = found.setdefault(name, {})
        for size, number in offered.items():
            sizes[size] = sizes.get(size, 0) + number * count


def served(kind: Kind, answers: Iterable[Candidates | None]) -> Candidates | None:
    """A vertex whose type is requested several times, by the answers as each of them."""
    able = frozenset(number for number, answer in enumerate(answers) if answer is not None)
    return {Served(kind.type, able): {kind.size: 1}} if able else None


def total(sizes: Mapping[int, int]) -> int:
    amount = 0
    for size, count in sizes.items():
        amount += size * count
    return amount


def supply_of(found: Candidates, level: Level, type_: str) -> Supply:
    if type_ in level.by_type:
        return {ALONE: found.get(type_, NOTHING_OF_IT)}
    return {
        key.able: sizes
        for key, sizes in found.items()
        if isinstance(key, Served) and key.type == type_
    }
