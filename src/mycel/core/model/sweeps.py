"""A parameter sweep: every combination of some values, by arithmetic.

A million combinations are as little to keep as one: the n-th is a number in a mixed radix,
whose last digit, the last parameter, changes fastest.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

import msgspec

from mycel.core.ranges import FEW, MANY, Index, LongData, Name

from .substitution import Budget, fill_value

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class Axis(msgspec.Struct, frozen=True):
    name: Name
    values: Annotated[tuple[LongData, ...], MANY]
    """JSON"""


class Sweep(msgspec.Struct, frozen=True, omit_defaults=True):
    axes: Annotated[tuple[Axis, ...], FEW]
    first: Index = 0
    """The index of the task that gets the first combination."""
    template: LongData = b""
    """JSON: arguments with `${…}` in them; without one the parameters are the arguments."""

    @property
    def count(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def parameters(self, index: int) -> list[tuple[str, bytes]]:
        """Of the task with this index in its job."""
        position = index - self.first
        assert 0 <= position < self.count, "the task is not one of the sweep"
        chosen = []
        for axis in reversed(self.axes):
            position, digit = divmod(position, len(axis.values))
            chosen.append((axis.name, axis.values[digit]))
        chosen.reverse()
        return chosen

    def arguments(self, index: int) -> bytes:
        """JSON: an object of the parameters, or the template filled with them."""
        return self._with(self.parameters(index))

    def longest(self) -> bytes:
        """What no task's arguments are longer than; raises `TooLong`."""
        return self._with([(axis.name, max(axis.values, key=len)) for axis in self.axes])

    def _with(self, chosen: list[tuple[str, bytes]]) -> bytes:
        if not self.template:
            return b"{" + b",".join(b"%s:%s" % (_encode(name), v) for name, v in chosen) + b"}"
        values: dict[str, Any] = {name: _decode(value) for name, value in chosen}
        return _encode(fill_value(_decode(self.template), values, Budget()))
