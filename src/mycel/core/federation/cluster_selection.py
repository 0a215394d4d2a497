"""Which of the clusters that fit gets the job.

    random          any of them
    constraint      steps by priority: filter, calculate, sort, select
    earliest-eta    the first to start it
    lowest-cost     the cheapest
    weighted        the least weighted sum of ETA and cost, each as a share of the largest

An `Option` is a cluster with what is known of it: its state and, if it was asked, its answer.
Selectors change none of it. Ties go to the name that sorts first, so that the same input gives
the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from .errors import ExpressionError
from .expressions import Value

ETA: Final = "eta_seconds"
COST: Final = "cost"

Draw = Callable[[int], int]
"""A seeded source: a number below its argument."""


class Option(msgspec.Struct, frozen=True):
    name: str
    attributes: dict[str, Value] = {}


class Choice(msgspec.Struct, frozen=True):
    name: str = ""
    """Empty if none was chosen."""
    reason: str = ""
    dropped: dict[str, str] = {}
    """Why others were not taken, where a selector says so."""


class Selector(Protocol):
    def __call__(
        self, options: Sequence[Option], job: Mapping[str, Value], draw: Draw
    ) -> Choice: ...


class AtRandom:
    def __call__(self, options: Sequence[Option], job: Mapping[str, Value], draw: Draw) -> Choice:
        ordered = in_order(options)
        if not ordered:
            return Choice(reason="no cluster is left")
        return Choice(ordered[draw(len(ordered))].name, "at random")


class Least:
    """The least of one attribute."""

    def __init__(self, key: str, words: str) -> None:
        self._key = key
        self._words = words

    def __call__(self, options: Sequence[Option], job: Mapping[str, Value], draw: Draw) -> Choice:
        key = self._key
        known, dropped = _with_numbers(options, (key,))
        if not known:
            return Choice(reason=f"no cluster says its {key}", dropped=dropped)
        best = min(known, key=lambda option: (_number(option, key), option.name))
        return Choice(best.name, f"{self._words} ({key} {_number(best, key):g})", dropped)


class Weighted:
    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {ETA: 0.5, COST: 0.5})
        if not self._weights or any(not 0 <= one <= 1e9 for one in self._weights.values()):
            raise ExpressionError("weights are numbers from 0 to 1e9")

    def __call__(self, options: Sequence[Option], job: Mapping[str, Value], draw: Draw) -> Choice:
        known, dropped = _with_numbers(options, tuple(self._weights))
        if not known:
            return Choice(reason="no cluster says what is weighed", dropped=dropped)
        largest = {
            key: max(abs(_number(one, key)) for one in known) or 1.0 for key in self._weights
        }

        def weigh(option: Option) -> float:
            return sum(
                weight * _number(option, key) / largest[key]
                for key, weight in self._weights.items()
            )

        best = min(known, key=lambda option: (weigh(option), option.name))
        return Choice(best.name, f"weighs least ({weigh(best):.3f})", dropped)


SIMPLE: Final[dict[str, Selector]] = {
    "random": AtRandom(),
    "earliest-eta": Least(ETA, "starts first"),
    "lowest-cost": Least(COST, "is cheapest"),
}


def in_order(options: Sequence[Option]) -> list[Option]:
    return sorted(options, key=lambda option: option.name)


def _with_numbers(
    options: Sequence[Option], keys: tuple[str, ...]
) -> tuple[list[Option], dict[str, str]]:
    known, dropped = [], {}
    for option in options:
        missing = [key for key in keys if not _is_number(option.attributes.get(key))]
        if missing:
            dropped[option.name] = f"says no {missing[0]}"
        else:
            known.append(option)
    return known, dropped


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(option: Option, key: str) -> float:
    return float(option.attributes[key])
