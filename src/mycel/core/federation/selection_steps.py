"""Selection by constraints: prioritised filter, calculate, sort and select steps.

Steps work on copies of what is known of clusters and jobs, so they change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from .cluster_selection import SIMPLE, Choice, Draw, Option, Selector, Weighted, in_order
from .errors import ExpressionError
from .expressions import Expression, Value

STEPS_MAX: Final = 100

_State = list[tuple[str, dict[str, Value]]]


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of them."""

    filter: str = ""
    calculate: str = ""
    """`name = expression`"""
    sort: str = ""
    """Ascending by an expression; `-cost` is descending."""
    select: str = ""
    """`first`, `last` or `random`"""


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    steps: list[Step]
    priority: int = 1


class Constrained:
    """Stages in the order of their priority, 1 first; the first that leaves somebody decides."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        if not stages:
            raise ExpressionError("a selection by constraints needs at least one stage")
        if sum(len(stage.steps) for stage in stages) > STEPS_MAX:
            raise ExpressionError(f"a selection has at most {STEPS_MAX} steps")
        ordered = sorted(stages, key=lambda stage: stage.priority)
        self._stages = [
            (stage.priority, [_prepare(step) for step in stage.steps]) for stage in ordered
        ]

    def __call__(self, options: Sequence[Option], job: Mapping[str, Value], draw: Draw) -> Choice:
        dropped: dict[str, str] = {}
        asked = {f"job.{key}": value for key, value in job.items()}
        for priority, steps in self._stages:
            # Copies: what a step calculates is gone when the choice is made.
            left = [(one.name, {**job, **one.attributes, **asked}) for one in in_order(options)]
            for step in steps:
                left = step.apply(left, draw, dropped)
            if left:
                return Choice(left[0][0], f"by the constraints of priority {priority}", dropped)
        return Choice(reason="no cluster is left by the constraints", dropped=dropped)


class _Applied(Protocol):
    def apply(self, state: _State, draw: Draw, dropped: dict[str, str]) -> _State: ...


def _prepare(step: Step) -> _Applied:
    given = [key for key in ("filter", "calculate", "sort", "select") if getattr(step, key)]
    if len(given) != 1:
        raise ExpressionError("a step is one of filter, calculate, sort and select")
    if step.filter:
        return _Filter(Expression(step.filter))
    if step.calculate:
        name, sign, text = step.calculate.partition("=")
        if not sign or not name.strip().isidentifier() or text.startswith("="):
            raise ExpressionError(f"{step.calculate!r} is not of the form name = expression")
        return _Calculate(name.strip(), Expression(text))
    if step.sort:
        return _Sort(Expression(step.sort))
    if step.select not in ("first", "last", "random"):
        raise ExpressionError(f"select is first, last or random, not {step.select!r}")
    return _Select(step.select)


class _Filter:
    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    def apply(self, state: _State, draw: Draw, dropped: dict[str, str]) -> _State:
        kept: _State = []
        for name, names in state:
            try:
                if self._expression.truth(names):
                    kept.append((name, names))
                else:
                    dropped[name] = f"not {self._expression.text}"
            except ExpressionError as error:
                dropped[name] = f"{self._expression.text}: {error}"
        return kept


class _Calculate:
    def __init__(self, name: str, expression: Expression) -> None:
        self._name = name
        self._expression = expression

    def apply(self, state: _State, draw: Draw, dropped: dict[str, str]) -> _State:
        kept: _State = []
        for cluster, names in state:
            try:
                value = self._expression.compute(names)
            except ExpressionError as error:
                dropped[cluster] = f"{self._name}: {error}"
            else:
                kept.append((cluster, {**names, self._name: value}))
        return kept


class _Sort:
    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    def apply(self, state: _State, draw: Draw, dropped: dict[str, str]) -> _State:
        keyed = []
        for name, names in state:
            try:
                keyed.append((self._expression.number(names), name, names))
            except ExpressionError as error:
                dropped[name] = f"{self._expression.text}: {error}"
        keyed.sort(key=lambda item: item[:2])
        return [(name, names) for _, name, names in keyed]


class _Select:
    def __init__(self, which: str) -> None:
        self._which = which

    def apply(self, state: _State, draw: Draw, dropped: dict[str, str]) -> _State:
        if not state:
            return state
        if self._which == "random":
            return [state[draw(len(state))]]
        return [state[0 if self._which == "first" else -1]]


def selector(name: str, options: Any = None) -> Selector | None:
    """Of those built in; None if there is none of the name. Raises ExpressionError."""
    try:
        if name == "weighted":
            weights = None if options is None else msgspec.convert(options, dict[str, float])
            return Weighted(weights)
        if name == "constraint":
            return Constrained(msgspec.convert(options or [], list[Stage]))
    except msgspec.ValidationError as error:
        raise ExpressionError(f"selection {name!r}: {error}") from None
    return SIMPLE.get(name)
