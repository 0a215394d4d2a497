"""How many slots can be built of what lies below a vertex, and of which alternatives.

A slot with a range takes the largest acceptable amount before slots are counted, as in Fluxion.
Of alternatives the mix with the most slots is searched for. With one or two of them the answer
is exact; with more it is exact within a budget, and beyond it may be too low, never too high.
"""

from __future__ import annotations

from typing import Final

from .candidates import NOTHING_OF_IT, Candidates, supply_of, total
from .division import Demand, Supply, amounts, available, can_divide, largest_that
from .request_levels import Level, Recipe
from .searches import Searches
from .slot_packing import shares

MIXES_MAX: Final = 5_000
STEPS_PER_MIX: Final = 5


def mix(contents: Level, found: Candidates, searches: Searches) -> tuple[int, ...]:
    """How many slots of each alternative: as many in all as possible."""
    if len(contents.recipes) == 1 and not contents.families:
        return (_of_one(contents, found, searches),)
    tried = _Mix(contents, found, searches)
    there = frozenset((key, frozenset(sizes.items())) for key, sizes in found.items())
    return searches.once(("mix", contents.number, there), tried.best, tried.alone)


def share_amounts(
    supplies: dict[str, Supply], recipe: Recipe, searches: Searches
) -> list[int] | None:
    """What one slot takes of each of its parts; None if there is too little for one slot."""
    found: dict[int, int] = {}
    for type_ in {part.type for part in recipe}:
        places = [place for place, part in enumerate(recipe) if part.type == type_]
        wanted = [(recipe[place].member, recipe[place].count) for place in places]
        given = amounts(supplies[type_], wanted, searches)
        if given is None:
            return None
        found.update(zip(places, given, strict=True))
    return [found[place] for place in range(len(recipe))]


def _of_one(contents: Level, found: Candidates, searches: Searches) -> int:
    """Without siblings each type can be counted alone."""
    fewest = -1
    for one in contents.by_type.values():
        sizes = found.get(one.request.type, NOTHING_OF_IT)
        per_slot = one.request.count.largest(total(sizes))
        number = shares(sizes, per_slot, searches) if per_slot else 0
        if not number:
            return 0
        fewest = number if fewest < 0 else min(fewest, number)
    return max(fewest, 0)


class _Mix:
    def __init__(self, contents: Level, found: Candidates, searches: Searches) -> None:
        self._supplies = {type_: supply_of(found, contents, type_) for type_ in contents.asked}
        self._recipes = contents.recipes
        self._searches = searches
        self._shares = [share_amounts(self._supplies, one, searches) for one in self._recipes]
        self._budget = MIXES_MAX
        self._best = tuple(0 for _ in self._recipes)

    def best(self) -> tuple[tuple[int, ...], int]:
        """And how many steps it took."""
        self.alone()
        if len(self._recipes) > 1:
            self._try([])
        return self._best, STEPS_PER_MIX * (MIXES_MAX - self._budget)

    def alone(self) -> tuple[int, ...]:
        """Of one alternative only."""
        nothing = [0] * len(self._recipes)
        for number in range(len(self._recipes)):
            self._keep([*nothing[:number], self._most(nothing[:number]), *nothing[number + 1 :]])
        return self._best

    def _keep(self, chosen: list[int]) -> None:
        if sum(chosen) > sum(self._best):
            self._best = tuple(chosen)

    def _try(self, chosen: list[int]) -> None:
        """Chooses how many of one alternative after the other, most first."""
        most = self._most(chosen)
        if len(chosen) == len(self._recipes) - 1:
            self._keep([*chosen, most])
            return
        for amount in range(most, -1, -1):
            if self._budget <= 0:
                return
            self._try([*chosen, amount])

    def _most(self, chosen: list[int]) -> int:
        """How many of the next alternative still fit beside those that are chosen."""
        parts = self._shares[len(chosen)]
        if parts is None:
            return 0
        high = min(
            available(self._supplies[part.type], part.member) // amount
            for part, amount in zip(self._recipes[len(chosen)], parts, strict=True)
        )
        return largest_that(0, high, lambda number: self._fits([*chosen, number]))

    def _fits(self, chosen: list[int]) -> bool:
        self._budget -= 1
        return all(
            can_divide(
                supply,
                demands_of(type_, self._recipes, self._shares, chosen),
                self._searches,
            )
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
