"""Which vertices go to which request, once it is known that they suffice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from .candidates import Candidates, Key, Served, supply_of
from .division import Able, Demand, Piece, amounts, divide
from .request_levels import Level, Wanted
from .searches import Searches
from .slot_choice import demands_of, mix, share_amounts
from .slot_packing import bundles

Item = TypeVar("Item")


class Offer(NamedTuple, Generic[Item]):
    """A vertex, as a backend knows it, with what it could serve among siblings of its type."""

    able: Able
    size: int
    item: Item


Slots = list[list[tuple[Item, Wanted]]]
Offers = Mapping[str, Sequence[Offer[Item]]]
"""By type, in the order in which they are to be taken."""


def share_out(
    level: Level, type_: str, offers: Sequence[Offer[Item]], searches: Searches
) -> list[list[Item]]:
    """For each of several requests of one type what it gets; empty if it does not suffice."""
    members = level.families[type_].members
    wanted = [(number, one.request.count) for number, one in enumerate(members)]
    supply = supply_of(_counted({type_: offers}, level), level, type_)
    given = amounts(supply, wanted, searches)
    if given is None:
        return []
    demands = [Demand(number, amount) for number, amount in enumerate(given)]
    return [
        [item for share in shares for item in share]
        for shares in _hand_out(demands, offers, searches)
    ]


def build_slots(
    contents: Level, offers: Offers[Item], searches: Searches
) -> list[list[tuple[Item, Wanted]]]:
    """As many slots as can be made, each with what it is made of."""
    if len(contents.recipes) == 1 and not contents.families:
        parts = [
            _bundled(one, offers.get(type_, ()), searches)
            for type_, one in contents.by_type.items()
        ]
        return [[pair for part in slot for pair in part] for slot in zip(*parts, strict=False)]
    found = _counted(offers, contents)
    numbers = mix(contents, found, searches)
    supplies = {type_: supply_of(found, contents, type_) for type_ in contents.asked}
    shares = [share_amounts(supplies, recipe, searches) for recipe in contents.recipes]
    handed = {
        type_: iter(
            _hand_out(
                demands_of(type_, contents.recipes, shares, numbers),
                offers.get(type_, ()),
                searches,
            )
        )
        for type_ in contents.asked
    }
    made: Slots[Item] = []
    for recipe, number in zip(contents.recipes, numbers, strict=True):
        slots: Slots[Item] = [[] for _ in range(number)]
        for part in recipe if number else ():
            family = contents.families.get(part.type)
            wanted = contents.by_type[part.type] if family is None else family.members[part.member]
            for slot, items in zip(slots, next(handed[part.type]), strict=True):
                slot.extend((item, wanted) for item in items)
        made += slots
    return made


def _bundled(
    wanted: Wanted, offers: Sequence[Offer[Item]], searches: Searches
) -> list[list[tuple[Item, Wanted]]]:
    sizes = [one.size for one in offers]
    per_slot = wanted.request.count.largest(sum(sizes))
    made = bundles(sizes, per_slot, searches) if per_slot else []
    return [[(offers[place].item, wanted) for place in bundle] for bundle in made]


def _hand_out(
    demands: Sequence[Demand], offers: Sequence[Offer[Item]], searches: Searches
) -> list[list[list[Item]]]:
    waiting: dict[Piece, list[Item]] = {}
    for able, size, item in reversed(offers):
        waiting.setdefault(Piece(able, size), []).append(item)
    supply: dict[Able, dict[int, int]] = {}
    for piece, items in waiting.items():
        supply.setdefault(piece.able, {})[piece.size] = len(items)
    divided = divide(supply, demands, searches)
    if divided is None:
        return []
    return [[[waiting[piece].pop() for piece in share] for share in one] for one in divided]


def _counted(offers: Offers[Item], level: Level) -> Candidates:
    found: dict[Key, dict[int, int]] = {}
    for type_, those in offers.items():
        for able, size, _ in those:
            key: Key = type_ if type_ in level.by_type else Served(type_, able)
            sizes = found.setdefault(key, {})
            sizes[size] = sizes.get(size, 0) + 1
    return found
