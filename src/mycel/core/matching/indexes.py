"""What is looked up instead of scanning all workers.

    Postings   who has this value (a label, a model, an arch), or any that a rule accepts
    Amounts    who has at least so much (memory, cores, disk, an amount of one's own)
    Levels     who stands at which level of something that changes all the time (load, room)

All three answer with a mask, and keep the masks they were asked for up to date.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Final, Generic, TypeVar

from .worker_sets import mask_of, slots_of

Value = TypeVar("Value", bound=Hashable)

KEPT_MAX: Final = 128
NEEDS_KEPT_MAX: Final = 32
"""So many answers of each index are kept up to date; the oldest goes first."""
_SPARSE_MAX: Final = 16
_VERDICTS_MAX: Final = 4096


class _Holders:
    """Who has one value. Few are a set, for a mask is as long as its highest slot: a label of
    every worker's own would cost its square."""

    __slots__ = ("count", "few", "many")

    def __init__(self) -> None:
        self.count = 0
        self.few: set[int] | None = set()
        self.many = 0

    @property
    def mask(self) -> int:
        return self.many if self.few is None else mask_of(self.few)

    def add(self, slot: int) -> None:
        self.count += 1
        if self.few is None:
            self.many |= 1 << slot
            return
        self.few.add(slot)
        if len(self.few) > _SPARSE_MAX:
            self.many = mask_of(self.few)
            self.few = None

    def remove(self, slot: int) -> None:
        self.count -= 1
        if self.few is not None:
            self.few.remove(slot)
            return
        self.many ^= 1 << slot
        if self.count < _SPARSE_MAX // 2:
            self.few = set(slots_of(self.many))
            self.many = 0


class _Rule(Generic[Value]):
    """A rule over values, with those that it accepts, and who has one of them."""

    __slots__ = ("accepts", "mask", "verdicts")

    def __init__(self, accepts: Callable[[Value], bool]) -> None:
        self.accepts = accepts
        self.verdicts: dict[Value, bool] = {}
        self.mask = 0

    def holds(self, value: Value) -> bool:
        verdict = self.verdicts.get(value)
        if verdict is None:
            if len(self.verdicts) >= _VERDICTS_MAX:
                self.verdicts.clear()
            verdict = self.verdicts[value] = self.accepts(value)
        return verdict


class Postings(Generic[Value]):
    """Slots by value. A slot may have several values, or none; a rule of `where` accepts at
    most one of them."""

    def __init__(self) -> None:
        self._holders: dict[Value, _Holders] = {}
        self._rules: dict[Hashable, _Rule[Value]] = {}

    def put(self, slot: int, before: Collection[Value], after: Collection[Value]) -> None:
        """The slot had these values, and has those."""
        if before == after:
            return
        for value in before:
            self._remove(slot, value)
        for value in after:
            self._add(slot, value)

    def values(self) -> list[Value]:
        return list(self._holders)

    def _add(self, slot: int, value: Value) -> None:
        holders = self._holders.get(value)
        if holders is None:
            holders = self._holders[value] = _Holders()
        holders.add(slot)
        self._flip(slot, value)

    def _remove(self, slot: int, value: Value) -> None:
        holders = self._holders[value]
        holders.remove(slot)
        if not holders.count:
            del self._holders[value]
        self._flip(slot, value)

    def _flip(self, slot: int, value: Value) -> None:
        for rule in self._rules.values():
            if rule.holds(value):
                rule.mask ^= 1 << slot

    def mask(self, value: Value) -> int:
        holders = self._holders.get(value)
        return 0 if holders is None else holders.mask

    def where(self, key: Hashable, accepts: Callable[[Value], bool]) -> int:
        """Who has a value that is accepted. Each distinct value is judged once per `key`."""
        rule = self._rules.get(key)
        if rule is None:
            rule = _Rule(accepts)
            for value, holders in self._holders.items():
                if rule.holds(value):
                    rule.mask |= holders.mask
            if len(self._rules) >= KEPT_MAX:
                del self._rules[next(iter(self._rules))]
            self._rules[key] = rule
        return rule.mask

    def counts(self, mask: int) -> list[tuple[Value, int]]:
        """How many of these have each value, most first."""
        counted = (
            (value, (holders.mask & mask).bit_count()) for value, holders in self._holders.items()
        )
        return sorted(
            ((value, count) for value, count in counted if count),
            key=lambda one: (-one[1], str(one[0])),
        )


def bucket_of(amount: int, per_octave_bits: int) -> int:
    """Amounts in steps of a fixed share: 2^bits steps to each doubling."""
    length = amount.bit_length()
    if length <= per_octave_bits + 1:
        return amount
    mantissa = amount >> (length - 1 - per_octave_bits)
    return ((length - per_octave_bits) << per_octave_bits) + mantissa - (1 << per_octave_bits)


class Amounts:
    """Slots by an amount, for "at least so much". Buckets of some 1.5 % are masks; within the
    bucket of the threshold itself the exact amounts decide."""

    _STEPS: Final = 6
    _STRIDE: Final = 8
    """All above is kept for every so many buckets; those between are joined when asked."""

    def __init__(self) -> None:
        self._amounts: dict[int, int] = {}
        self._masks: dict[int, int] = {}
        self._sorted: dict[int, list[tuple[int, int]]] = {}
        self._floors: dict[int, int] = {}
        """Who is in this bucket or above, for every eighth that was asked for."""
        self._needs: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._amounts)

    def put(self, slot: int, amount: int | None) -> None:
        """`None`: it is gone."""
        before = self._amounts.get(slot)
        if before == amount:
            return
        if before is not None:
            del self._amounts[slot]
            self._change(slot, before)
            bucket = self._sorted[bucket_of(before, self._STEPS)]
            del bucket[bisect_left(bucket, (before, slot))]
            if not bucket:
                del self._sorted[bucket_of(before, self._STEPS)]
                del self._masks[bucket_of(before, self._STEPS)]
        if amount is not None:
            self._amounts[slot] = amount
            self._change(slot, amount)
            insort(self._sorted.setdefault(bucket_of(amount, self._STEPS), []), (amount, slot))

    def _change(self, slot: int, amount: int) -> None:
        bit = 1 << slot
        bucket = bucket_of(amount, self._STEPS)
        self._masks[bucket] = self._masks.get(bucket, 0) ^ bit
        for floor in self._floors:
            if bucket >= floor:
                self._floors[floor] ^= bit
        for need in self._needs:
            if amount >= need:
                self._needs[need] ^= bit

    def at_least(self, need: int) -> int:
        found = self._needs.get(need)
        if found is None:
            bucket = bucket_of(need, self._STEPS)
            floor = -(-(bucket + 1) // self._STRIDE) * self._STRIDE
            found = self._floor(floor) | self._part(bucket, need)
            for between in range(bucket + 1, floor):
                found |= self._masks.get(between, 0)
            if len(self._needs) >= NEEDS_KEPT_MAX:
                del self._needs[next(iter(self._needs))]
            self._needs[need] = found
        return found

    def _floor(self, floor: int) -> int:
        found = self._floors.get(floor)
        if found is None:
            found = 0
            for bucket, mask in self._masks.items():
                if bucket >= floor:
                    found |= mask
            self._floors[floor] = found
        return found

    def _part(self, bucket: int, need: int) -> int:
        amounts = self._sorted.get(bucket)
        if amounts is None:
            return 0
        place = bisect_left(amounts, (need, -1))
        if place == 0:
            return self._masks[bucket]
        if place * 2 > len(amounts):
            return mask_of(slot for _, slot in amounts[place:])
        return self._masks[bucket] ^ mask_of(slot for _, slot in amounts[:place])

    def largest(self, mask: int) -> int:
        """The largest amount among these; 0 if they have none."""
        for bucket in sorted(self._masks, reverse=True):
            if self._masks[bucket] & mask:
                amounts = self._sorted[bucket]
                return next(amount for amount, slot in reversed(amounts) if mask >> slot & 1)
        return 0


class Levels:
    """Slots by a small whole number that changes often. Who moves to another level costs two
    bits; who stays costs nothing."""

    def __init__(self) -> None:
        self._level: dict[int, int] = {}
        self._masks: dict[int, int] = {}
        self._order: list[int] = []
        self._at_least: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._level)

    def put(self, slot: int, level: int | None) -> None:
        before = self._level.get(slot)
        if before == level:
            return
        bit = 1 << slot
        if before is not None:
            left = self._masks[before] ^ bit
            if left:
                self._masks[before] = left
            else:
                del self._masks[before]
                del self._order[bisect_left(self._order, before)]
        if level is None:
            del self._level[slot]
        else:
            self._level[slot] = level
            if level in self._masks:
                self._masks[level] |= bit
            else:
                self._masks[level] = bit
                insort(self._order, level)
        for least in self._at_least:
            if (before is not None and before >= least) != (level is not None and level >= least):
                self._at_least[least] ^= bit

    def get(self, slot: int) -> int | None:
        return self._level.get(slot)

    def at_least(self, least: int) -> int:
        found = self._at_least.get(least)
        if found is None:
            found = 0
            for level in self._order[bisect_left(self._order, least) :]:
                found |= self._masks[level]
            if len(self._at_least) >= KEPT_MAX:
                del self._at_least[next(iter(self._at_least))]
            self._at_least[least] = found
        return found

    def descending(self) -> Iterator[int]:
        return reversed(self._order)

    def of(self, level: int) -> int:
        return self._masks.get(level, 0)

    @property
    def lowest(self) -> int:
        return self._order[0] if self._order else 0

    @property
    def highest(self) -> int:
        return self._order[-1] if self._order else 0

    def ascending(self, mask: int) -> Iterator[int]:
        """These slots, one level after the other; those without a level are left out."""
        for level in list(self._order):
            if part := self.of(level) & mask:
                yield part
