"""How many of something a job wants: one number, a range, or a list of them.

A range is `min`, `max` and a step (RFC 14): the step adds, multiplies or raises to a power.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from mycel.core.federation.errors import SpecError
from mycel.core.federation.graph.idsets import parse_idset

UNLIMITED: Final = (1 << 63) - 1
COUNT_MAX: Final = (1 << 32) - 1
"""What one count may ask for. Fluxion keeps counts in 32 bits too."""

_RANGE: Final = re.compile(r"(\d+)(?:-(\d+)|(\+))(?::(\d+)(?::([+*^]))?)?")


class Count(msgspec.Struct, frozen=True):
    minimum: int
    maximum: int
    operator: str = "+"
    operand: int = 1
    values: tuple[int, ...] = ()
    """All acceptable counts in ascending order; if empty, the range decides."""

    def largest(self, available: int) -> int:
        """The largest acceptable count of what is available, or 0."""
        if available < self.minimum:
            return 0
        if self.values:
            return max((value for value in self.values if value <= available), default=0)
        limit = min(available, self.maximum)
        if self.operator == "+":
            return limit - (limit - self.minimum) % self.operand
        best = current = self.minimum
        while current <= limit:
            best = current
            following = current * self.operand if self.operator == "*" else current**self.operand
            if following <= current:
                break
            current = following
        return best


def exactly(number: int) -> Count:
    return Count(number, number)


def at_least(minimum: int) -> Count:
    return Count(minimum, UNLIMITED)


def ranged(
    minimum: int, maximum: int, operator: str = "+", operand: int = 1, *, place: str = "count"
) -> Count:
    """Checks what RFC 14 asks of a range."""
    if minimum < 1:
        raise SpecError(place, f"min is {minimum}, but must be at least 1")
    if minimum > COUNT_MAX or COUNT_MAX < maximum < UNLIMITED:
        raise SpecError(place, f"counts above {COUNT_MAX} are not accepted")
    if maximum < minimum:
        raise SpecError(place, f"max ({maximum}) is less than min ({minimum})")
    if operator not in ("+", "*", "^"):
        raise SpecError(place, f"operator {operator!r} is none of + * ^")
    least = 1 if operator == "+" else 2
    if operand < least:
        raise SpecError(place, f"operand must be at least {least} for operator {operator}")
    if operand > COUNT_MAX:
        raise SpecError(place, f"operands above {COUNT_MAX} are not accepted")
    if operator == "^" and minimum < 2:
        raise SpecError(place, "min must be at least 2 for operator ^")
    return Count(minimum, maximum, operator, operand)


def parse_count(text: str, place: str = "count") -> Count:
    """`4`, `2-8`, `2+`, `2-64:2:*` (RFC 45) or `1,2,4` (RFC 22)."""
    words = text.strip()
    if words.isascii() and words.isdigit():
        return ranged(_bounded(words, place), _bounded(words, place), place=place)
    match = _RANGE.fullmatch(words.removeprefix("[").removesuffix("]"))
    if match is not None:
        low, high, _, operand, operator = match.groups()
        maximum = UNLIMITED if high is None else _bounded(high, place)
        step = 1 if operand is None else _bounded(operand, place)
        return ranged(_bounded(low, place), maximum, operator or "+", step, place=place)
    try:
        values = tuple(sorted(parse_idset(words)))
    except ValueError:
        raise SpecError(
            place, f"{text!r} is no count: write 4, 2-8, 2+, 2-64:2:* or 1,2,4"
        ) from None
    if not values or values[0] < 1:
        raise SpecError(place, "every acceptable count must be at least 1")
    return Count(values[0], values[-1], values=values)


def _bounded(digits: str, place: str) -> int:
    if len(digits) > len(str(COUNT_MAX)):
        raise SpecError(place, f"counts above {COUNT_MAX} are not accepted")
    return int(digits)
