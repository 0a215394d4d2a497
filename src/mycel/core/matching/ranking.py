"""In which order workers are asked: filter, order, tie-break.

    filter     the whole requirement, healthy; a far worker only if no closer one takes such tasks
    order      those with room first, then by the algorithm
    tie-break  one of this process, of this machine, one that is linked, then the strategy

An algorithm is a function that cuts a set of workers into sets of equals, the best first. It
gets the set as a mask and a `View` that knows how to cut by load, by history, by burden and
waste, and in turn. More of them come in by the entry point group `mycel.selection`: the core
only sees the table of functions that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from mycel.core.model.work import Shape

from .rank_terms import EQUAL_STEPS, Member
from .score import Weights
from .worker_sets import from_slot, slots_of, without

if TYPE_CHECKING:
    from .worker_pool import Pool

Algorithm = Callable[[int, "View"], Iterator[int]]


class SelectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    algorithm: str = "best"
    strategy: str = "least-loaded"
    load_metric: str = "task-count"
    prefer_local_workers: bool = True
    max_network_latency_seconds: float = 0.1
    weights: Weights = Weights()


class View:
    """What an algorithm may look at, for one shape."""

    def __init__(
        self,
        pool: Pool,
        shape: Shape,
        random: Callable[[], float],
        having_data: int = 0,
        counts: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """`counts` says of a worker whether others may be measured by it: a set of those with
        room may hold some that have none."""
        self._pool = pool
        self._counts = counts
        self._discounted = 0
        """Those that are known not to count."""
        self.shape = shape
        self.random = random
        self.having_data = having_data
        """Who has the files that the next task needs."""

    @property
    def own(self) -> int:
        return self._pool.own

    @property
    def local(self) -> int:
        return self._pool.local

    @property
    def linked(self) -> int:
        return self._pool.linked

    def by_load(self, mask: int) -> Iterator[int]:
        return self._pool.load.ascending(mask)

    def by_history(self, mask: int) -> Iterator[int]:
        """The highest score first, and with it all within 10 %; those not measured stand at
        the mean."""
        history = self._pool.history
        mean = self._pool.mean_history
        rest = mask
        unmeasured = without(mask, self._pool.measured)
        while rest:
            best = next((n for n in history.descending() if self._any(history.of(n) & rest)), None)
            if best is None or (best < mean and self._any(rest & unmeasured)):
                best = mean
            equal = history.at_least(best - EQUAL_STEPS) & rest
            if mean >= best - EQUAL_STEPS:
                equal |= rest & unmeasured
            if not equal:  # nobody left counts
                equal = rest
            yield equal
            rest ^= equal

    def _any(self, mask: int) -> bool:
        """Whether somebody counts. Each is looked at once, however often that is asked: with
        much of a large swarm full, it is asked for every one that turns out to be."""
        mask = without(mask, self._discounted) if self._discounted else mask
        for tried, slot in enumerate(slots_of(mask)):
            if self._counts(slot):
                if tried:
                    self._discounted |= mask & ((1 << slot) - 1)
                return True
        self._discounted |= mask
        return False

    def in_turn(self, mask: int) -> Iterator[int]:
        """One by one, from behind the one that had the last turn."""
        for slot in _from(mask, self._pool.turn):
            yield 1 << slot

    def by_weight(self, mask: int) -> Iterator[int]:
        """The least burden and waste, where a worker that ran the shape before has the
        advantage of one: its environment is there. One with the task's files has that of two."""
        burden = self._pool.burden
        parts = self._by_waste(mask)
        if not parts:
            return
        wastes = [waste for waste, _ in parts]
        first, last = burden.lowest + min(wastes), burden.highest + max(wastes)
        for total in range(first, last + 1):
            equal = 0
            for waste, part in parts:
                equal |= burden.of(total - waste) & part
            if equal:
                yield equal

    def _by_waste(self, mask: int) -> list[tuple[int, int]]:
        warm, having = self._pool.warm.get(self.shape, 0), self.having_data
        nearer = [one for one in ((0, warm & having), (1, having), (2, warm)) if one[1]]
        parts: list[tuple[int, int]] = []
        for waste, everybody in self._pool.eligibility.by_waste(self.shape.requirements):
            part = everybody & mask
            for more, who in nearer:
                if part & who:
                    parts.append((waste + more, part & who))
                    part ^= part & who
            if part:
                parts.append((waste + 3, part))
        return parts

    def by_key(self, mask: int, key: Callable[[Member], float]) -> Iterator[int]:
        """By anything at all, the least first. It looks at every worker of the set: for
        plug-ins of small swarms."""
        groups: dict[float, int] = {}
        for slot in slots_of(mask):
            value = key(self._pool.at(slot))
            groups[value] = groups.get(value, 0) | 1 << slot
        for value in sorted(groups):
            yield groups[value]


def round_robin(mask: int, view: View) -> Iterator[int]:
    return view.in_turn(mask)


def capability_based(mask: int, view: View) -> Iterator[int]:
    return view.by_load(mask)


def performance_aware(mask: int, view: View) -> Iterator[int]:
    return view.by_history(mask)


def best(mask: int, view: View) -> Iterator[int]:
    return view.by_weight(mask)


ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    "round-robin": round_robin,
    "capability-based": capability_based,
    "performance-aware": performance_aware,
    "best": best,
}


def unordered(mask: int, view: View) -> Iterator[int]:
    del view  # chance decides among equals anyway
    yield mask


STRATEGIES: Final[Mapping[str, Algorithm]] = {
    "least-loaded": capability_based,
    "random": unordered,
    "performance": performance_aware,
}


def local_first(mask: int, view: View) -> Iterator[int]:
    """Those of the scheduler's own process first, then those of its machine."""
    for part in _preferring(mask, view.own):
        yield from _preferring(part, view.local)


def linked_first(mask: int, view: View) -> Iterator[int]:
    return _preferring(mask, view.linked)


def _preferring(mask: int, preferred: int) -> Iterator[int]:
    first = mask & preferred
    if first:
        yield first
    if first != mask:
        yield mask ^ first


def _from(mask: int, start: int) -> Iterator[int]:
    """All slots of a set that is not empty, in a circle from `start` on."""
    first = from_slot(mask, start)
    yield first
    rest = mask ^ (1 << first)
    if not rest:
        return
    for slot in slots_of(rest >> first):
        yield first + slot
    yield from slots_of(rest & ((1 << first) - 1))


class Order:
    """An algorithm and its tie-breaks, ready to be applied."""

    def __init__(self, settings: SelectionSettings, algorithms: Mapping[str, Algorithm]) -> None:
        assert settings.algorithm in algorithms, f"there is no algorithm {settings.algorithm}"
        self._criteria: list[Algorithm] = [algorithms[settings.algorithm]]
        if settings.prefer_local_workers:
            self._criteria.append(local_first)
        self._criteria += [linked_first, STRATEGIES[settings.strategy]]

    def apply(self, mask: int, view: View) -> Iterator[int]:
        """Slots, the best first; among equals from a place that chance picks, so that
        schedulers with the same view do not all ask the same worker."""
        yield from self._cut(mask, view, 0)

    def _cut(self, mask: int, view: View, depth: int) -> Iterator[int]:
        if not mask:
            return
        if depth == len(self._criteria):
            yield from _from(mask, int(view.random() * mask.bit_length()))
            return
        for part in self._criteria[depth](mask, view):
            yield from self._cut(part, view, depth + 1)
