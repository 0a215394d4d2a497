"""`matrix`: lists of values by name, with `include` and `exclude` as people know them."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from mycel.api.http.problems import unprocessable
from mycel.core.model.derivation import JOB_TASKS_MAX
from mycel.core.model.sweeps import Axis, Sweep

LISTED_MAX: Final = 10_000
"""So many combinations may be sifted by `exclude` and added to by `include`."""
_NAME: Final = re.compile(r"[A-Za-z_][\w-]{0,99}")
_RESERVED: Final = ("needs",)
_encode: Final = msgspec.json.Encoder().encode

Parameters = dict[str, Any]


def sweep_of(matrix: dict[str, Any], path: str) -> tuple[Sweep, list[Parameters] | None]:
    """The sweep; and its combinations one by one if some are left out or added."""
    axes: list[Axis] = []
    for name, values in matrix.items():
        if name in ("include", "exclude"):
            continue
        if not _NAME.fullmatch(name) or name in _RESERVED:
            raise unprocessable(f"{name!r} cannot be the name of a parameter", f"{path}.{name}")
        if not isinstance(values, list) or not values:
            raise unprocessable("a parameter has a list of values", f"{path}.{name}")
        axes.append(Axis(name, tuple(_encode(value) for value in values)))
    include, exclude = (_listed(matrix, which, path) for which in ("include", "exclude"))
    count = _count_of(axes, bool(include or exclude), path) if axes else 0
    if not count and not include:
        raise unprocessable("a matrix needs a parameter with values", path)
    sweep = Sweep(tuple(axes))
    if not include and not exclude:
        return sweep, None
    found = combinations(sweep) if axes else []
    return sweep, [one for one in found if not _is_excluded(one, exclude)] + include


def combinations(sweep: Sweep) -> list[Parameters]:
    return [
        {name: msgspec.json.decode(value) for name, value in sweep.parameters(index)}
        for index in range(sweep.count)
    ]


def _count_of(axes: list[Axis], is_listed: bool, path: str) -> int:
    lengths = [len(axis.values) for axis in axes]
    count = math.prod(lengths)
    limit = LISTED_MAX if is_listed else JOB_TASKS_MAX
    if count > limit:
        factors = " × ".join(f"{length:,}" for length in lengths)
        why = " with include or exclude" if is_listed else ""
        raise unprocessable(
            f"{factors} = {count:,} combinations; a matrix{why} has at most {limit:,}", path
        )
    return count


def _listed(matrix: dict[str, Any], which: str, path: str) -> list[Parameters]:
    given = matrix.get(which, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) and one for one in given):
        raise unprocessable(f"{which} is a list of parameters with values", f"{path}.{which}")
    if len(given) > LISTED_MAX:
        raise unprocessable(f"{which} has at most {LISTED_MAX:,} entries", f"{path}.{which}")
    return given


def _is_excluded(one: Parameters, exclude: list[Parameters]) -> bool:
    return any(
        all(name in one and one[name] == value for name, value in pattern.items())
        for pattern in exclude
    )
