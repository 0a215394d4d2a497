"""What is asked of each pool of processes. Runs in Ray's environment, too: the standard library
and numpy only.

A pool calls one function with one argument, or with many, and gives the values back in order.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

BULK: Final = "bulk"
ONE_BY_ONE: Final = "one_by_one"
ARRAY: Final = "array"
KINDS: Final = (BULK, ONE_BY_ONE, ARRAY)


class Pool(Protocol):
    def call(self, argument: Any) -> Any:
        """The identity of it, by a worker."""

    def calls(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """The same of many, each a task of its own, all at once."""


def identity(value: Any) -> Any:
    return value


def seconds_of(pool: Pool, kind: str, amount: int) -> float:
    """`amount` is a number of calls, or of megabytes."""
    if kind == BULK:
        return _timed(lambda: pool.calls(range(amount)), list(range(amount)))
    if kind == ONE_BY_ONE:
        numbers = list(range(amount))
        return _timed(lambda: [pool.call(number) for number in numbers], numbers)
    array = np.random.default_rng().random(amount * 1_000_000 // 8)
    began = time.perf_counter()
    back = pool.call(array)
    seconds = time.perf_counter() - began
    assert np.array_equal(back, array), "the array came back as another"
    return seconds


def _timed(call: Callable[[], Sequence[Any]], expected: list[Any]) -> float:
    began = time.perf_counter()
    found = call()
    seconds = time.perf_counter() - began
    assert list(found) == expected, "a value came back as another"
    return seconds


def serve(pool: Pool) -> None:
    """Measures what it reads, a line each: the kind and the amount. Answers in JSON."""
    print(json.dumps({"event": "ready"}), flush=True)
    for line in sys.stdin:
        kind, amount = line.split()
        seconds = seconds_of(pool, kind, int(amount))
        print(json.dumps({"event": "measured", "seconds": seconds}), flush=True)
