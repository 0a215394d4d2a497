"""Version ranges, as people write them: ">=12.2,<13"."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_CONDITION: Final = re.compile(r"\s*(?:>=|<=|==|!=|>|<)?\s*v?[0-9][\w.+-]*\s*")


def is_version_range(wanted: str) -> bool:
    """Whether `version_satisfies` understands all of it. ">=12 <13" lacks a comma, "~=3.11" and
    "3.11.*" are another language's: they would never fit, or only in part."""
    return all(_CONDITION.fullmatch(part) for part in wanted.split(","))


def version_satisfies(version: str, wanted: str) -> bool:
    """`wanted` is a list like ">=12.2,<13"; without an operator it means exactly that."""
    have = _version(version)
    for part in wanted.split(","):
        text = part.strip()
        operator = next((o for o in (">=", "<=", "==", "!=", ">", "<") if text.startswith(o)), "")
        need = _version(text[len(operator) :])
        width = max(len(have), len(need))
        left = have + (0,) * (width - len(have))
        right = need + (0,) * (width - len(need))
        if not _COMPARE[operator or "=="](left, right):
            return False
    return True


def _version(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.strip().lstrip("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        numbers.append(int(digits) if digits else 0)
    return tuple(numbers)


_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
}
