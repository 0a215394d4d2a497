"""A tiny language for selection steps: numbers, texts, names, arithmetic, comparison, logic.

    nodes_free >= job.nodes and region == "eu"
    cost_per_node_hour * job.nodes * max(1, eta_seconds / 3600)

There is no assignment, no loop, no attribute access and no call but `min`, `max` and `abs`, so
that an expression can neither change anything nor take long. Names are looked up in a mapping.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from .errors import ExpressionError

Value = float | str | bool
LENGTH_MAX: Final = 1_000
DEPTH_MAX: Final = 24

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)|(?P<text>\"[^\"]*\"|'[^']*')"
    r"|(?P<name>[A-Za-z_][\w.]*)|(?P<sign><=|>=|==|!=|[-+*/%()<>,]))"
)
_COMPARE: Final = ("<=", ">=", "==", "!=", "<", ">")
_FUNCTIONS: Final[dict[str, Callable[..., float]]] = {"min": min, "max": max, "abs": abs}


class Node(msgspec.Struct, frozen=True):
    operator: str
    parts: tuple[Node, ...] = ()
    value: Value = 0.0


class Expression:
    """Parsed once, computed often."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise ExpressionError(f"an expression has at most {LENGTH_MAX} characters")
        self.text = text
        self._tree = _Parser(text).parse()

    def compute(self, names: Mapping[str, Value]) -> Value:
        """Raises ExpressionError, for example for a name that is not there."""
        return _compute(self._tree, names)

    def number(self, names: Mapping[str, Value]) -> float:
        value = self.compute(names)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ExpressionError(f"{self.text!r} is no number")
        return float(value)

    def truth(self, names: Mapping[str, Value]) -> bool:
        value = self.compute(names)
        if not isinstance(value, bool):
            raise ExpressionError(f"{self.text!r} is neither true nor false")
        return value


class _Parser:
    """By recursive descent: or, and, not, comparison, sum, product, sign, atom."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._position = 0
        self._depth = 0

    def parse(self) -> Node:
        found = self._or()
        if self._position < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._position][1]!r} is not expected")
        return found

    def _or(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong("it is nested too deep")
        left = self._chain(("or",), lambda: self._chain(("and",), self._not))
        self._depth -= 1
        return left

    def _not(self) -> Node:
        negated = False
        while self._take("not"):
            negated = not negated
        found = self._comparison()
        return Node("not", (found,)) if negated else found

    def _comparison(self) -> Node:
        left = self._sum()
        sign = self._take(*_COMPARE)
        return Node(sign, (left, self._sum())) if sign else left

    def _sum(self) -> Node:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/", "%"), self._sign))

    def _chain(self, signs: tuple[str, ...], part: Callable[[], Node]) -> Node:
        left = part()
        while sign := self._take(*signs):
            left = Node(sign, (left, part()))
        return left

    def _sign(self) -> Node:
        negative = False
        while sign := self._take("-", "+"):
            negative ^= sign == "-"
        found = self._atom()
        return Node("negative", (found,)) if negative else found

    def _atom(self) -> Node:
        kind, text = self._next()
        if kind == "number":
            return Node("value", value=float(text))
        if kind == "text":
            return Node("value", value=text[1:-1])
        if kind == "name":
            if text in ("true", "false"):
                return Node("value", value=text == "true")
            if text in _FUNCTIONS and self._take("("):
                return Node(text, self._arguments())
            return Node("name", value=text)
        if text == "(":
            found = self._or()
            if not self._take(")"):
                raise self._wrong("a bracket is not closed")
            return found
        raise self._wrong(f"{text!r} is not expected")

    def _arguments(self) -> tuple[Node, ...]:
        found = [self._or()]
        while self._take(","):
            found.append(self._or())
        if not self._take(")"):
            raise self._wrong("a bracket is not closed")
        return tuple(found)

    def _take(self, *words: str) -> str:
        if self._position < len(self._tokens):
            kind, text = self._tokens[self._position]
            if kind != "text" and text in words:
                self._position += 1
                return text
        return ""

    def _next(self) -> tuple[str, str]:
        if self._position >= len(self._tokens):
            raise self._wrong("it ends too early")
        self._position += 1
        return self._tokens[self._position - 1]

    def _wrong(self, problem: str) -> ExpressionError:
        return ExpressionError(f"the expression {self._text!r}: {problem}")


def _tokens(text: str) -> list[tuple[str, str]]:
    found, position = [], 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            rest = stripped[position : position + 10]
            raise ExpressionError(f"the expression {text!r}: cannot read {rest!r}")
        kind = str(match.lastgroup)
        found.append((kind, match[kind]))
        position = match.end()
    return found


def _compute(node: Node, names: Mapping[str, Value]) -> Value:
    match node.operator:
        case "value":
            return node.value
        case "name":
            if node.value not in names:
                raise ExpressionError(f"there is no {node.value!r}")
            return names[str(node.value)]
        case "or":
            return any(_truth(_compute(part, names)) for part in node.parts)
        case "and":
            return all(_truth(_compute(part, names)) for part in node.parts)
        case "not":
            return not _truth(_compute(node.parts[0], names))
        case "==" | "!=":
            left, right = (_compute(part, names) for part in node.parts)
            return (left == right) is (node.operator == "==")
    values = [_compute(part, names) for part in node.parts]
    if node.operator in _COMPARE:
        return _compared(node.operator, values[0], values[1])
    return _arithmetic(node.operator, [_number(value) for value in values])


def _compared(operator: str, left: Value, right: Value) -> bool:
    if isinstance(left, str) != isinstance(right, str):
        raise ExpressionError(f"{left!r} and {right!r} cannot be compared")
    order = (left > right) - (left < right)  # type: ignore[operator]
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[operator]


def _arithmetic(operator: str, values: list[float]) -> float:
    try:
        match operator:
            case "+":
                found = values[0] + values[1]
            case "-":
                found = values[0] - values[1]
            case "*":
                found = values[0] * values[1]
            case "/":
                found = values[0] / values[1]
            case "%":
                found = values[0] % values[1]
            case "negative":
                found = -values[0]
            case "abs" if len(values) != 1:
                raise ExpressionError("abs takes one number")
            case "min" | "max" if len(values) == 1:
                found = values[0]
            case _:
                found = _FUNCTIONS[operator](*values)
    except (ZeroDivisionError, OverflowError):
        raise ExpressionError("a division by nothing, or a number too large") from None
    if not math.isfinite(found):
        raise ExpressionError("a number too large")
    return found


def _number(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ExpressionError(f"{value!r} is no number")
    return float(value)


def _truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise ExpressionError(f"{value!r} is neither true nor false")
    return value
