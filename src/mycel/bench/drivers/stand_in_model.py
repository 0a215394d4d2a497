"""A stand-in for a language model, for machines without one: tokens at a steady pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

TOKEN_SECONDS: Final = 0.009
"""As a small model on two cores."""


def model() -> Callable[[list[dict[str, Any]]], Iterator[list[str]]]:
    def answer(inputs: list[dict[str, Any]]) -> Iterator[list[str]]:
        due = time.perf_counter()
        for number in range(int(inputs[0].get("max_tokens", 64))):
            due += TOKEN_SECONDS
            time.sleep(max(0.0, due - time.perf_counter()))
            yield [f"{number} " for _ in inputs]

    return answer
