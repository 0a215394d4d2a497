"""Models as Python entry points, for the tests: they run in a worker's child process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Request = dict[str, Any]
Model = Callable[[list[Request]], Any]


def last_words(given: Request) -> str:
    return str(given["messages"][-1]["content"])


def parrot() -> Model:
    """Says what it was asked, and in how large a company. "die" ends its process, "fail"
    raises, "quit" wants to leave, "number" and "nothing" answer what is no text."""

    def answer(inputs: list[Request]) -> list[Any]:
        said = [last_words(one) for one in inputs]
        if "die" in said:
            os._exit(3)
        if "fail" in said:
            raise ValueError("that is too much")
        if "quit" in said:
            sys.exit("I have had enough")
        if "slow" in said:
            time.sleep(0.2)
        odd = {"number": 5, "nothing": {"words": 3}}
        if said[0] in odd:
            return [odd[said[0]] for _ in inputs]
        return [f"{text} ({len(inputs)} of {os.getpid()})" for text in said]

    return answer


def teller() -> Model:
    """Yields word by word, for all that it was asked together."""

    def answer(inputs: list[Request]) -> Iterator[list[str | None]]:
        words = [last_words(one).split() for one in inputs]
        for position in range(max(map(len, words))):
            yield [f"{one[position]} " if position < len(one) else None for one in words]
            if any("slowly" in one for one in words):
                time.sleep(0.02)

    return answer


def embedder() -> Model:
    """Of an empty text it makes what is not a number."""
    return lambda inputs: [[float(len(one["input"]) or "nan")] for one in inputs]


def adder() -> Model:
    """A model of a kind of its own."""
    return lambda inputs: [{"sum": sum(one["input"]) + one.get("more", 0)} for one in inputs]


def broken() -> Model:
    raise RuntimeError("the weights are missing")
