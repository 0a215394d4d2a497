"""Vertices divided among requests of one type that stand side by side.

    node ×1 with 1 core         a vertex may serve the one, the other, or both:
    node ×2 with 40 cores       then it has to be given to one of them

A vertex is given as a whole. Where all vertices are of one size that is a flow problem, which
is solved exactly. Pools of different sizes are packed by a search with a budget; beyond it the
answer may be "no" where "yes" was possible, never the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from mycel.core.federation.request.counts import Count

from .searches import Searches

Able = frozenset[int]
"""The requests that a vertex can serve, by their number among their siblings."""
Supply = Mapping[Able, Mapping[int, int]]
"""By ability: how many vertices there are of each size."""
SEARCH_MAX: Final = 4_000
SEARCHED_VERTICES_MAX: Final = 64
"""Above this the search would end at its budget anyway: shares are filled largest first."""


class Demand(NamedTuple):
    request: int
    amount: int
    times: int = 1
    """So many shares of the amount, each of vertices of its own."""


class Piece(NamedTuple):
    able: Able
    size: int


Share = list[Piece]


def divide(
    supply: Supply, demands: Sequence[Demand], searches: Searches
) -> list[list[Share]] | None:
    """For each demand its shares, or None if there is no way."""
    kinds = _kinds(supply)
    if _has_sizes(supply):
        return _search(kinds, demands, searches)
    size = next((piece.size for piece in kinds), 1)
    flow = _flow([(piece.able, n) for piece, n in kinds.items()], _units(demands, size))
    if flow is None:
        return None
    pieces = list(kinds)
    found = []
    for number, demand in enumerate(demands):
        mine = [piece for piece, row in zip(pieces, flow, strict=True) for _ in range(row[number])]
        each = -(-demand.amount // size)
        found.append([mine[at : at + each] for at in range(0, len(mine), each)])
    return found


def can_divide(supply: Supply, demands: Sequence[Demand], searches: Searches) -> bool:
    kinds = _kinds(supply)
    if _has_sizes(supply):
        return _search(kinds, demands, searches) is not None
    size = next((piece.size for piece in kinds), 1)
    groups = [(piece.able, n) for piece, n in kinds.items()]
    return _flow(groups, _units(demands, size)) is not None


def _search(
    kinds: dict[Piece, int], demands: Sequence[Demand], searches: Searches
) -> list[list[Share]] | None:
    key = ("division", frozenset(kinds.items()), tuple(demands))
    return searches.once(key, _Search(kinds, demands).found, lambda: None)


def amounts(
    supply: Supply, wanted: Sequence[tuple[int, Count]], searches: Searches
) -> list[int] | None:
    """How much each request gets: the first as much as leaves the others their least, and so on.
    None if not even the least is there."""
    if len(wanted) == 1:
        ((request, count),) = wanted
        amount = count.largest(available(supply, request))
        return [amount] if amount else None
    found = [count.minimum for _, count in wanted]
    place = 0  # the request that `fits` asks about

    def fits(amount: int) -> bool:
        tried = [*found[:place], amount, *found[place + 1 :]]
        demands = [Demand(one, much) for (one, _), much in zip(wanted, tried, strict=True)]
        return can_divide(supply, demands, searches)

    if not fits(found[0]):
        return None
    for place, (request, count) in enumerate(wanted):
        if count.maximum > count.minimum:
            most = min(count.maximum, available(supply, request))
            found[place] = count.largest(largest_that(count.minimum, most, fits))
    return found


def available(supply: Supply, request: int) -> int:
    """How much could serve the request, if it stood alone."""
    return sum(
        size * n for able, sizes in supply.items() if request in able for size, n in sizes.items()
    )


def largest_that(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `high` that fits, where `low` does and less always fits too."""
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _kinds(supply: Supply) -> dict[Piece, int]:
    return {
        Piece(able, size): n
        for able, sizes in supply.items()
        for size, n in sizes.items()
        if size > 0 and n > 0
    }


def _has_sizes(supply: Supply) -> bool:
    """Whether vertices differ in size, so that a search is needed."""
    return len({size for sizes in supply.values() for size, n in sizes.items() if size and n}) > 1


def _units(demands: Sequence[Demand], size: int) -> list[tuple[int, int]]:
    return [(one.request, -(-one.amount // size) * one.times) for one in demands]


def _flow(groups: list[tuple[Able, int]], needs: list[tuple[int, int]]) -> list[list[int]] | None:
    """How many of each group go to each need, by augmenting paths; None if some need is short."""
    spare = [count for _, count in groups]
    given = [[0] * len(needs) for _ in groups]
    for number, (_, units) in enumerate(needs):
        left = units
        while left > 0:
            path = _path(number, groups, needs, spare, given)
            if path is None:
                return None
            # Each step takes from a group; its former holder takes from the next.
            end = path[-1][1]
            moved = min(left, spare[end])
            for (_, group), (holder, _) in pairwise(path):
                moved = min(moved, given[group][holder])
            spare[end] -= moved
            for need, group in path:
                given[group][need] += moved
            for (_, group), (holder, _) in pairwise(path):
                given[group][holder] -= moved
            left -= moved
    return given


def _path(
    start: int,
    groups: list[tuple[Able, int]],
    needs: list[tuple[int, int]],
    spare: list[int],
    given: list[list[int]],
) -> list[tuple[int, int]] | None:
    """(need, group it takes from), from the start to a group that has some to spare."""
    came: dict[int, tuple[int, int] | None] = {start: None}
    waiting = [start]
    for need in waiting:
        able = [g for g, (those, _) in enumerate(groups) if needs[need][0] in those]
        for group in able:
            if spare[group] > 0:
                path = [(need, group)]
                back = came[need]
                while back is not None:
                    path.append(back)
                    back = came[back[0]]
                return path[::-1]
        for group in able:
            for holder, amount in enumerate(given[group]):
                if amount > 0 and holder not in came:
                    came[holder] = (need, group)
                    waiting.append(holder)
    return None


class _Search:
    """Fills one share after the other and steps back where it fails."""

    def __init__(self, kinds: Mapping[Piece, int], demands: Sequence[Demand]) -> None:
        self._pieces = sorted(kinds, key=lambda piece: (-piece.size, len(piece.able)))
        self._left = [kinds[piece] for piece in self._pieces]
        self._budget = SEARCH_MAX
        self._failed: set[tuple[int, tuple[int, ...]]] = set()
        self._short = sum(one.times for one in demands) > SEARCH_MAX
        # Who has the least choice goes first: the order changes nothing but the time.
        ordered = sorted(range(len(demands)), key=lambda n: -demands[n].amount)
        self._order = [] if self._short else [n for n in ordered for _ in range(demands[n].times)]
        self._demands = demands

    def found(self) -> tuple[list[list[Share]] | None, int]:
        """And how many steps it took."""
        made: list[Share] = []
        if self._short or not self._fill(made):
            return None, SEARCH_MAX - self._budget
        shares: list[list[Share]] = [[] for _ in self._demands]
        for number, share in zip(self._order, made, strict=True):
            shares[number].append(share)
        return shares, SEARCH_MAX - self._budget

    def _fill(self, made: list[Share]) -> bool:
        """Without recursion over shares: there may be thousands of them."""
        open_: list[Iterator[Share]] = []
        while len(made) < len(self._order):
            if len(open_) == len(made):
                open_.append(self._shares(self._demands[self._order[len(made)]]))
            state = (len(made), tuple(self._left))
            share = None if state in self._failed else next(open_[-1], None)
            if share is not None:
                self._move(share, -1)
                made.append(share)
                continue
            self._failed.add(state)
            open_.pop()
            if not made or self._budget <= 0:
                return False
            self._move(made.pop(), 1)
        return True

    def _move(self, share: Share, step: int) -> None:
        for piece in share:
            self._left[self._pieces.index(piece)] += step

    def _shares(self, demand: Demand) -> Iterator[Share]:
        """Sets of vertices that suffice and have none to spare, fewest left over first."""
        able = [
            n
            for n, piece in enumerate(self._pieces)
            if demand.request in piece.able and self._left[n]
        ]
        if sum(self._left) > SEARCHED_VERTICES_MAX:
            yield from self._greedy(able, demand.amount)
            return
        found: list[list[int]] = []
        rest = [self._pieces[n].size * self._left[n] for n in able]
        for place in range(len(rest) - 2, -1, -1):
            rest[place] += rest[place + 1]
        stack: list[tuple[int, int, list[int]]] = [(0, 0, [])]
        while stack and self._budget > 0:
            self._budget -= 1
            total, start, taken = stack.pop()
            if total >= demand.amount:
                found.append(taken)
                continue
            for place in range(start, len(able)):
                number = able[place]
                if total + rest[place] < demand.amount:
                    break
                if taken.count(number) < self._left[number]:
                    stack.append((total + self._pieces[number].size, place, [*taken, number]))
        found.sort(key=lambda taken: sum(self._pieces[n].size for n in taken))
        for taken in found:
            yield [self._pieces[number] for number in taken]

    def _greedy(self, able: list[int], amount: int) -> Iterator[Share]:
        """Largest first; the last is the smallest that does."""
        taken: Share = []
        left = {n: self._left[n] for n in able}
        while amount > 0 and left:
            fitting = [n for n in left if self._pieces[n].size >= amount]
            number = fitting[-1] if fitting else next(iter(left))
            taken.append(self._pieces[number])
            amount -= self._pieces[number].size
            left[number] -= 1
            if not left[number]:
                del left[number]
        if amount <= 0:
            yield taken
