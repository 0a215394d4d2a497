"""Which nodes a job accepts, beyond how many (RFC 31).

    {}                                    every node
    {"properties": ["ssd", "^slow"]}      has ssd, lacks slow
    {"hostlist": ["n[0-3]"]}, {"ranks": ["0-3"]}
    {"and": […]}, {"or": […]}, {"not": […]}

Only vertices of the types `node` and `storage_node` are held against them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from mycel.core.federation.errors import SpecError
from mycel.core.federation.graph.idsets import IDS_MAX, parse_hostlist, parse_idset

CONSTRAINED_TYPES: Final = frozenset(("node", "storage_node"))
DEPTH_MAX: Final = 32
_FORBIDDEN: Final = frozenset("!&'\"^`|()")
_LOGIC: Final = frozenset(("and", "or", "not"))

Name = TypeVar("Name", str, int)


class Constraint(msgspec.Struct, frozen=True):
    operator: str
    """`all`, `properties`, `hostlist`, `ranks`, `and`, `or`, `not`"""
    texts: tuple[str, ...] = ()
    hosts: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    parts: tuple[Constraint, ...] = ()

    @property
    def names_nodes(self) -> bool:
        """Whether nodes that are otherwise equal can differ under it."""
        return self.operator in ("hostlist", "ranks") or any(p.names_nodes for p in self.parts)

    def accepts(self, properties: frozenset[str], name: str, rank: int) -> bool:
        match self.operator:
            case "properties":
                return all(
                    (text[1:] not in properties) if text[0] == "^" else text in properties
                    for text in self.texts
                )
            case "hostlist":
                return name in self.hosts
            case "ranks":
                return rank in self.ranks
            case "and":
                return all(part.accepts(properties, name, rank) for part in self.parts)
            case "or":
                # RFC 31 defines the empty one as true.
                parts = self.parts
                return not parts or any(part.accepts(properties, name, rank) for part in parts)
            case "not":
                return not all(part.accepts(properties, name, rank) for part in self.parts)
        return True


EVERYWHERE: Final = Constraint("all")


def properties(*wanted: str) -> Constraint:
    """Also for readers of other formats, whose features become properties."""
    return Constraint("properties", wanted)


def both(left: Constraint, right: Constraint) -> Constraint:
    if left.operator == "all":
        return right
    return left if right.operator == "all" else Constraint("and", parts=(left, right))


def parse_constraint(value: Any, place: str) -> Constraint:
    """Raises SpecError."""
    return _Parser().parse(value, place, 0)


class _Parser:
    def __init__(self) -> None:
        self._room = IDS_MAX
        """For the hosts and ranks of all constraints together."""

    def parse(self, value: Any, place: str, depth: int) -> Constraint:
        if not isinstance(value, Mapping):
            raise SpecError(place, "a constraint is a mapping of one operator to a list")
        if depth > DEPTH_MAX:
            raise SpecError(place, f"constraints are nested more than {DEPTH_MAX} deep")
        if len(value) > 1:
            raise SpecError(place, "a constraint has one operator; join several with 'and'")
        if not value:
            return EVERYWHERE
        operator, operands = next(iter(value.items()))
        if operator not in _LOGIC and operator not in ("properties", "hostlist", "ranks"):
            raise SpecError(
                place, f"{operator!r} is no operator: use properties, hostlist, ranks, and, or, not"
            )
        here = f"{place}.{operator}"
        if not isinstance(operands, list):
            raise SpecError(here, "takes a list")
        if operator in _LOGIC:
            parts = (self.parse(one, f"{here}[{n}]", depth + 1) for n, one in enumerate(operands))
            return Constraint(operator, parts=tuple(parts))
        texts = tuple(_text(one, operator, f"{here}[{n}]") for n, one in enumerate(operands))
        if operator == "hostlist":
            return Constraint(operator, texts, hosts=self._named(texts, here, parse_hostlist))
        if operator == "ranks":
            return Constraint(operator, texts, ranks=self._named(texts, here, parse_idset))
        return Constraint(operator, texts)

    def _named(
        self, texts: tuple[str, ...], place: str, parse: Callable[[str, int], set[Name]]
    ) -> frozenset[Name]:
        found: set[Name] = set()
        for number, text in enumerate(texts):
            try:
                new = parse(text, self._room)
            except ValueError as error:
                raise SpecError(f"{place}[{number}]", str(error)) from None
            self._room -= len(new)
            found |= new
        return frozenset(found)


def _text(value: Any, operator: str, place: str) -> str:
    if operator == "ranks" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise SpecError(place, "must be a string")
    if operator == "properties":
        name = value.removeprefix("^")
        if not name or _FORBIDDEN & set(name):
            raise SpecError(place, f"{value!r} is no property: it may not contain {_shown()}")
    return value


def _shown() -> str:
    return " ".join(sorted(_FORBIDDEN))
