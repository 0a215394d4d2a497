"""How many slots can be made of whole vertices.

A slot's share of a type is made of whole vertices: of two memory vertices of 64 GB a job gets
two slots of 1 GB, not 128. Making as many shares as possible is the bin covering problem. With
vertices of one size, or of sizes that each fill a share, counting solves it. For the rest a
search with a budget takes over; beyond the budget the answer may be too low, never too high.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .searches import Searches

SEARCH_MAX: Final = 20_000
SEARCHED_VERTICES_MAX: Final = 64
"""Above this the search would end at its budget anyway."""


def shares(sizes: Mapping[int, int], per_share: int, searches: Searches) -> int:
    """How many shares of `per_share` can be made of vertices (size: how many)."""
    if per_share <= 0:
        return 0
    whole = sum(count for size, count in sizes.items() if size >= per_share)
    small = {size: n for size, n in sizes.items() if 0 < size < per_share and n > 0}
    if not small:
        return whole
    if len(small) == 1:
        ((size, count),) = small.items()
        return whole + count // -(-per_share // size)
    return whole + len(_recipes(small, per_share, searches))


def bundles(sizes: list[int], per_share: int, searches: Searches) -> list[list[int]]:
    """Which vertices (by position) make each share; as many shares as `shares` promises."""
    made = [[position] for position, size in enumerate(sizes) if size >= per_share]
    positions: dict[int, list[int]] = {}
    for position, size in enumerate(sizes):
        if 0 < size < per_share:
            positions.setdefault(size, []).append(position)
    for stack in positions.values():
        stack.reverse()
    small = {size: len(stack) for size, stack in positions.items()}
    if len(small) == 1:
        ((size, stack),) = positions.items()
        each = -(-per_share // size)
        made += [[stack.pop() for _ in range(each)] for _ in range(len(stack) // each)]
    elif small:
        for recipe in _recipes(small, per_share, searches):
            made.append([positions[size].pop() for size in recipe])
    return made


def _recipes(small: Mapping[int, int], per_share: int, searches: Searches) -> list[tuple[int, ...]]:
    """Of which sizes each share is made."""
    search = _Search(small, per_share)
    key = ("shares", frozenset(small.items()), per_share)
    return searches.once(key, search.best, search.greedy)


class _Search:
    """Fills one share after the other, largest vertex first, and remembers what is left."""

    def __init__(self, sizes: Mapping[int, int], per_share: int) -> None:
        self._sizes = tuple(sorted(sizes, reverse=True))
        self._counts = tuple(sizes[size] for size in self._sizes)
        self._per_share = per_share
        self._budget = SEARCH_MAX
        self._known: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

    def best(self) -> tuple[list[tuple[int, ...]], int]:
        """And how many steps it took."""
        greedy = self.greedy()
        if sum(self._counts) > SEARCHED_VERTICES_MAX:
            return greedy, 0
        found = self._best(self._counts)
        return found if len(found) > len(greedy) else greedy, SEARCH_MAX - self._budget

    def _best(self, counts: tuple[int, ...]) -> list[tuple[int, ...]]:
        known = self._known.get(counts)
        if known is not None:
            return known
        total = sum(size * n for size, n in zip(self._sizes, counts, strict=True))
        bound = total // self._per_share
        best: list[tuple[int, ...]] = []
        # Some best answer uses the largest vertex, or uses it nowhere and can swap it in.
        for recipe, left in self._recipes(counts):
            if len(best) >= bound or self._budget <= 0:
                break
            self._budget -= 1
            rest = self._best(left)
            if len(rest) + 1 > len(best):
                best = [recipe, *rest]
        self._known[counts] = best
        return best

    def _recipes(self, counts: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Minimal shares that contain the largest vertex left."""
        first = next((number for number, n in enumerate(counts) if n), None)
        if first is None:
            return []
        found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        rest = self._rest(counts)
        stack: list[tuple[int, tuple[int, ...], int]] = [(self._sizes[first], (first,), first)]
        while stack and len(found) < 200 and self._budget > 0:
            self._budget -= 1
            total, taken, lowest = stack.pop()
            there = rest[lowest] - taken.count(lowest) * self._sizes[lowest]
            if total + there < self._per_share:
                continue
            if total >= self._per_share:
                left = list(counts)
                for number in taken:
                    left[number] -= 1
                found.append((tuple(self._sizes[number] for number in taken), tuple(left)))
                continue
            stack.extend(
                (total + self._sizes[number], (*taken, number), number)
                for number in range(lowest, len(counts))
                if counts[number] > taken.count(number)
            )
        found.sort(key=lambda item: (sum(item[0]), len(item[0])))
        return found

    def _rest(self, counts: tuple[int, ...]) -> list[int]:
        """How much there is from each size down."""
        rest = [size * n for size, n in zip(self._sizes, counts, strict=True)]
        for number in range(len(rest) - 2, -1, -1):
            rest[number] += rest[number + 1]
        return rest

    def greedy(self) -> list[tuple[int, ...]]:
        """Largest first, topped up with the smallest that does."""
        counts = list(self._counts)
        left = sum(size * n for size, n in zip(self._sizes, counts, strict=True))
        made: list[tuple[int, ...]] = []
        while left >= self._per_share:
            taken: list[int] = []
            missing = self._per_share
            while missing > 0:
                there = [number for number, n in enumerate(counts) if n]
                fitting = [number for number in there if self._sizes[number] >= missing]
                number = fitting[-1] if taken and fitting else there[0]
                counts[number] -= 1
                taken.append(self._sizes[number])
                missing -= self._sizes[number]
            left -= sum(taken)
            made.append(tuple(taken))
        return made
