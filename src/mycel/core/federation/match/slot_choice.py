"""How many slots can be built of what lies below a vertex, and of which alternatives.

A slot with a range takes the largest acceptable amount before slots are counted, as in Fluxion.
Of alternatives the mix with the most slots is searched for. With one or two of them the answer
is exact; with more it is exact within a budget, and beyond it may be too low, never too high.
"""

from __future__ import annotations

from typing import Final

from mycel.core.federation.request.counts import UNLIMITED

from .candidates import NOTHING_OF_IT, Candidates, supply_of, total
from .division import Demand, Supply, amounts, available, can_divide, largest_that
from .request_levels import Level, Recipe
from .slot_packing import shares

MIXES_MAX: Final = 5_000
SEARCH_COST: Final = 50
"""Of a mix whose vertices differ in size and have to be searched through."""


def mix(contents: Level, found: Candidates, wanted: int = UNLIMITED) -> tuple[int, ...]:
    """How many slots of each alternative: as many as possible, or as are wanted."""
    if len(contents.recipes) == 1 and not contents.families:
        return (min(_of_one(contents, found), wanted),)
    return _Mix(contents, found, wanted).best()


def share_amounts(supplies: dict[str, Supply], recipe: Recipe) -> list[int] | None:
    """What one slot takes of each of its parts; None if there is too little for one slot."""
    found: dict[int, int] = {}
    for type_ in {part.type for part in recipe}:
        places = [place for place, part in enumerate(recipe) if part.type == type_]
        wanted = [(recipe[place].member, recipe[place].count) for place in places]
        given = amounts(supplies[type_], wanted)
        if given is None:
            return None
        found.update(zip(places, given, strict=True))
    return [found[place] for place in range(len(recipe))]


def _of_one(contents: Level, found: Candidates) -> int:
    """Without siblings each type can be counted alone."""
    fewest = -1
    for one in contents.by_type.values():
        sizes = found.get(one.request.type, NOTHING_OF_IT)
        per_slot = one.request.count.largest(total(sizes))
        number = shares(sizes, per_slot) if per_slot else 0
        if not number:
            return 0
        fewest = number if fewest < 0 else min(fewest, number)
    return max(fewest, 0)


class _Mix:
    def __init__(self, contents: Level, found: Candidates, wanted: int) -> None:
        self._supplies = {type_: supply_of(found, contents, type_) for type_ in contents.asked}
        self._recipes = contents.recipes
        self._shares = [share_amounts(self._supplies, recipe) for recipe in self._recipes]
        self._wanted = wanted
        self._budget = MIXES_MAX
        self._best = tuple(0 for _ in self._recipes)
        mixed = any(
            len({size for sizes in one.values() for size in sizes}) > 1
            for one in self._supplies.values()
        )
        self._cost = SEARCH_COST if mixed else 1

    def best(self) -> tuple[int, ...]:
        self._try([])
        return self._best

    def _try(self, chosen: list[int]) -> None:
        """Chooses how many of one alternative after the other, most first."""
        number = len(chosen)
        if self._budget <= 0 or sum(self._best) >= self._wanted:
            return
        most = self._most(chosen)
        if number == len(self._recipes) - 1:
            if sum(chosen) + most > sum(self._best):
                self._best = (*chosen, most)
            return
        for amount in range(most, -1, -1):
            self._try([*chosen, amount])
            if self._budget <= 0 or sum(self._best) >= self._wanted:
                return

    def _most(self, chosen: list[int]) -> int:
        """How many of the next alternative still fit beside those that are chosen."""
        parts = self._shares[len(chosen)]
        if parts is None:
            return 0
        recipe = self._recipes[len(chosen)]
        high = self._wanted - sum(chosen)
        for part, amount in zip(recipe, parts, strict=True):
            high = min(high, available(self._supplies[part.type], part.member) // amount)
        if high <= 0:
            return 0
        return largest_that(0, high, lambda number: self._fits([*chosen, number]))

    def _fits(self, chosen: list[int]) -> bool:
        self._budget -= self._cost
        return all(
            can_divide(supply, demands_of(type_, self._recipes, self._shares, chosen))
            for type_, supply in self._supplies.items()
        )


def demands_of(
    type_: str,
    recipes: tuple[Recipe, ...],
    shares_: list[list[int] | None],
    chosen: list[int] | tuple[int, ...],
) -> list[Demand]:
    """What so many slots of each alternative take of a type."""
    return [
        Demand(part.member, amount, number)
        for recipe, parts, number in zip(recipes, shares_, chosen, strict=False)
        if number and parts is not None
        for part, amount in zip(recipe, parts, strict=True)
        if part.type == type_
    ]
